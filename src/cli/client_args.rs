//! How a command is known to a gateway, or to etcd: never by what stands on its command line, which
//! everybody on the machine can read.

use std::path::PathBuf;

use crate::worker::TokenFile;

#[derive(Debug, clap::Args)]
pub(super) struct BearerToken {
    /// The file with the bearer token to be known by at the gateway
    #[arg(long, env = "FENCEGATE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl BearerToken {
    /// The token, if there is to be one, or what is wrong with its file.
    pub(super) fn open(&self) -> Result<Option<TokenFile>, String> {
        let file = self.token_file.as_deref().map(TokenFile::open).transpose();
        file.map_err(|error| error.to_string())
    }
}
