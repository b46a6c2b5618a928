//! The bearer token that a worker is known by at a gateway, in a file.
//!
//! In a file and nowhere else, since others on the machine can see command lines. It is read before
//! every request, so that a token that is rotated is taken up without a restart; one that cannot be
//! read meanwhile does not end a lease.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;

use crate::live_file::{Live, LiveFile};

/// A token's file. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TokenFile(Arc<LiveFile<HeaderValue>>);

/// A file that holds no token.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the token file {path:?} {why}")]
pub struct InvalidTokenFile {
    path: PathBuf,
    why: String,
}

impl TokenFile {
    /// The token in the file at `path`: one line, the end of which does not matter.
    ///
    /// # Errors
    /// It cannot be read, or holds no token.
    pub fn open(path: &Path) -> Result<TokenFile, InvalidTokenFile> {
        LiveFile::open(path, field)
            .map(|file| TokenFile(Arc::new(file)))
            .map_err(|wrong| InvalidTokenFile { path: path.to_owned(), why: wrong.join("; ") })
    }

    /// Reads the file anew; if it cannot be read, the last token does.
    pub(crate) fn reload(&self) {
        let _ = self.0.reload();
    }

    /// The value of `Authorization`.
    pub(crate) fn field(&self) -> HeaderValue {
        self.0.get()
    }
}

fn field(text: &str) -> Result<HeaderValue, Vec<String>> {
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let field = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_token);
    let mut field = field.ok_or_else(|| vec!["holds no token, which is one word".to_owned()])?;
    field.set_sensitive(true);
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_anew_and_the_last_one_does_while_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(TokenFile::open(&path).is_err());
        for wrong in ["", " \n", "two words", "sécret"] {
            std::fs::write(&path, wrong).unwrap();
            let error = TokenFile::open(&path).unwrap_err().to_string();
            assert!(error.contains("holds no token") && !error.contains("cret"), "{error}");
        }
        std::fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(&path).unwrap();
        assert_eq!(token.field(), "Bearer one");
        std::fs::write(&path, "two").unwrap();
        token.reload();
        assert_eq!(token.field(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        token.reload();
        assert_eq!(token.field(), "Bearer two");
        assert!(!format!("{token:?} {:?}", token.field()).contains("two"));
    }
}
