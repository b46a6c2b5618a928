//! Files that are in use while the process runs, and that may be replaced meanwhile: secrets that
//! are rotated.
//!
//! Invariant: what is in use is the last content that held. A file that cannot be read, or whose
//! content is wrong, changes nothing and is told of once. Looked at by content, since a time stamp
//! may be the same after a quick change, and a name may be a link that is turned (Kubernetes).
//! Deliberately absent: notifications of the file system, which network file systems do not have.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

/// No file that is read here has more; a device that never ends is cut off.
const MOST_BYTES: u64 = 1024 * 1024;
/// A change is taken over when two looks found the same: nobody wants half of a file.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The text of a file.
///
/// # Errors
/// Says why the file cannot be read, without its name.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err("is larger than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// What a file's text means, or all that is wrong with it, without the file's name.
pub type Parse<T> = fn(&str) -> Result<T, Vec<String>>;

/// What is made of a file, kept up to date.
pub struct LiveFile<T> {
    path: PathBuf,
    parse: Parse<T>,
    current: RwLock<T>,
    seen: Mutex<Seen<Content>>,
}

/// The hash of a content, as the content may be a secret; or why there is none.
type Content = Result<[u8; 32], String>;

/// What was found in a file. Of what `C` is, equal means that nothing has changed.
pub(crate) struct Seen<C> {
    /// Taken over, or found wrong and told of.
    settled: C,
    /// Found by the last look.
    last: C,
}

impl<C: Clone + PartialEq> Seen<C> {
    pub(crate) fn new(settled: C) -> Seen<C> {
        Seen { last: settled.clone(), settled }
    }

    /// Takes note of what a look found. Whether that is new, and was there at the look before.
    pub(crate) fn look(&mut self, found: C) -> bool {
        let is_quiet = self.last == found;
        self.last = found;
        is_quiet && self.last != self.settled
    }

    /// Takes note of what was found and is dealt with now.
    pub(crate) fn settle(&mut self, found: C) {
        *self = Seen::new(found);
    }
}

/// A file that can be asked to look at itself.
pub trait Live: Send + Sync {
    /// Takes a change over that this look and the one before found.
    fn look(&self);

    /// Reads the file anew; `false`: it says what it said.
    ///
    /// # Errors
    /// All that is wrong with it. What was in use stays so.
    fn reload(&self) -> Result<bool, Vec<String>>;
}

impl<T: Clone> LiveFile<T> {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// All that is wrong with it, without its name.
    pub fn open(path: &Path, parse: Parse<T>) -> Result<LiveFile<T>, Vec<String>> {
        let text = read_text(path).map_err(|why| vec![why])?;
        let current = RwLock::new(parse(&text)?);
        let seen = Mutex::new(Seen::new(hash(&text)));
        Ok(LiveFile { path: path.to_owned(), parse, current, seen })
    }

    /// What is in use.
    pub fn get(&self) -> T {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen<Content>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_over(&self, text: Result<String, String>) -> Result<(), Vec<String>> {
        let taken = text.map_err(|why| vec![why]).and_then(|text| (self.parse)(&text));
        let file = self.path.display();
        match taken {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = value;
                tracing::info!(%file, "a changed file was taken over");
                Ok(())
            }
            Err(mistakes) => {
                let mistakes_shown = mistakes.join("; ");
                tracing::error!(
                    %file,
                    mistakes = mistakes_shown,
                    "a changed file was not taken over; what it said before stays in use"
                );
                Err(mistakes)
            }
        }
    }
}

impl<T: Clone + Send + Sync> Live for LiveFile<T> {
    fn look(&self) {
        let text = read_text(&self.path);
        let content = content_of(&text);
        let mut seen = self.seen();
        if seen.look(content.clone()) {
            seen.settle(content);
            // Told in the log, and a look has nobody else to tell.
            let _ = self.take_over(text);
        }
    }

    fn reload(&self) -> Result<bool, Vec<String>> {
        let text = read_text(&self.path);
        let content = content_of(&text);
        let mut seen = self.seen();
        let is_new = seen.settled != content;
        if !is_new && content.is_ok() && (self.parse)(text.as_deref().unwrap_or_default()).is_ok() {
            return Ok(false);
        }
        seen.settle(content);
        self.take_over(text).map(|()| true)
    }
}

fn hash(text: &str) -> Content {
    Ok(Sha256::digest(text.as_bytes()).into())
}

fn content_of(text: &Result<String, String>) -> Content {
    text.as_deref().map_err(Clone::clone).and_then(hash)
}

/// The file's name alone: what is in it may be a secret.
impl<T> fmt::Debug for LiveFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveFile").field(&self.path).finish()
    }
}

/// Looks at `files` until `shutdown`.
pub async fn watch(files: Vec<Arc<dyn Live>>, shutdown: CancellationToken) {
    let files: Arc<[Arc<dyn Live>]> = files.into();
    let pause = async || tokio::time::sleep(LOOK_EVERY).await;
    while !files.is_empty() && shutdown.run_until_cancelled(pause()).await.is_some() {
        let files = Arc::clone(&files);
        // Apart, since a file on a network may take its time.
        let looks = tokio::task::spawn_blocking(move || files.iter().for_each(|file| file.look()));
        if let Err(error) = looks.await {
            tracing::error!(%error, "looking at changed files failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<u64, Vec<String>> {
        text.trim().parse().map_err(|_| vec!["is no number".to_owned()])
    }

    struct Place(tempfile::TempDir);

    impl Place {
        fn write(&self, text: &str) {
            std::fs::write(self.path(), text).unwrap();
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("file")
        }
    }

    fn place(text: &str) -> (Place, LiveFile<u64>) {
        let place = Place(tempfile::tempdir().unwrap());
        place.write(text);
        let file = LiveFile::open(&place.path(), number).unwrap();
        (place, file)
    }

    #[test]
    fn a_change_is_taken_over_when_it_is_quiet() {
        let (place, file) = place("1");
        place.write("2");
        file.look();
        assert_eq!(file.get(), 1, "it may be half of what is being written");
        place.write("23");
        file.look();
        assert_eq!(file.get(), 1);
        file.look();
        assert_eq!(file.get(), 23);
    }

    #[test]
    fn a_bad_or_missing_file_changes_nothing_and_a_good_one_does_again() {
        let (place, file) = place("1");
        place.write("x");
        file.look();
        file.look();
        assert_eq!(file.get(), 1);
        std::fs::remove_file(place.path()).unwrap();
        file.look();
        file.look();
        assert_eq!(file.get(), 1);
        place.write("3");
        file.look();
        file.look();
        assert_eq!(file.get(), 3);
    }

    #[test]
    fn a_reload_is_at_once_and_tells_what_is_wrong() {
        let (place, file) = place("1");
        assert_eq!(file.reload(), Ok(false));
        place.write("2");
        assert_eq!(file.reload(), Ok(true));
        assert_eq!(file.get(), 2);
        place.write("x");
        for _ in 0..2 {
            assert_eq!(file.reload(), Err(vec!["is no number".to_owned()]));
        }
        assert_eq!(file.get(), 2);
        place.write("2");
        assert_eq!(file.reload(), Ok(true));
    }
}
