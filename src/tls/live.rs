//! A configuration that follows its files.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::metrics::Certificate;
use super::{TlsError, TlsMetrics, files};

/// What a configuration is made of.
pub trait Files: Send + Sync + 'static {
    /// What is made of it.
    type Config: Send + Sync;

    /// The files, in the order in which [`Files::build`] gets what is in them.
    fn paths(&self) -> Vec<&Path>;

    /// Makes the configuration, and says when its certificate ends, in seconds since 1970.
    ///
    /// # Errors
    /// A file is not what it should be, or they do not fit together.
    fn build(&self, contents: &[Vec<u8>]) -> Result<(Self::Config, Option<i64>), TlsError>;

    /// Reads and makes it once, to see whether that is possible.
    ///
    /// # Errors
    /// It is not.
    fn check(&self) -> Result<(), TlsError> {
        read_all(self).and_then(|contents| self.build(&contents)).map(|_| ())
    }
}

/// The configuration in use. Whoever began with an earlier one goes on with that.
pub struct Live<F: Files> {
    files: F,
    current: RwLock<Arc<F::Config>>,
    /// What the files held when they were last looked at, whether it was taken or refused: so that what is
    /// refused is said once.
    seen: Mutex<Result<Vec<Vec<u8>>, TlsError>>,
    certificate: Certificate,
}

/// What became of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// They are as they were.
    Unchanged,
    /// New connections use what is in them now.
    Applied,
    /// They cannot be used; what was in use stays.
    Refused(TlsError),
}

impl<F: Files> Live<F> {
    /// Reads the files. `name` is what metrics and logs call it.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn open(name: &str, files: F, metrics: &TlsMetrics) -> Result<Live<F>, TlsError> {
        let contents = read_all(&files)?;
        let (config, expiry) = files.build(&contents)?;
        let certificate = metrics.certificate(name, expiry);
        let (current, seen) = (RwLock::new(Arc::new(config)), Mutex::new(Ok(contents)));
        Ok(Live { files, current, seen, certificate })
    }

    /// What a new connection is to use.
    #[must_use]
    pub fn current(&self) -> Arc<F::Config> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What it is made of.
    #[must_use]
    pub const fn files(&self) -> &F {
        &self.files
    }

    /// Looks at the files, and takes what is in them, whole or not at all. It reads files, so it may block.
    pub fn reload(&self) -> Reloaded {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = read_all(&self.files);
        if *seen == contents {
            return Reloaded::Unchanged;
        }
        let built = contents.as_ref().map_err(TlsError::clone);
        let built = built.and_then(|contents| self.files.build(contents));
        *seen = contents;
        match built {
            Ok((config, expiry)) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                self.certificate.applied(expiry);
                Reloaded::Applied
            }
            Err(error) => {
                self.certificate.refused(&error);
                Reloaded::Refused(error)
            }
        }
    }
}

fn read_all(of: &(impl Files + ?Sized)) -> Result<Vec<Vec<u8>>, TlsError> {
    of.paths().into_iter().map(files::read).collect()
}
