//! A target that the gateway accepts is, to every tolerant server, the path of its resource and no other.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/gateway/target.rs"]
#[allow(dead_code, reason = "routes use what is not used here")]
mod target;
#[path = "../../src/gateway/target/tolerant.rs"]
mod tolerant;

use target::{normal_path, without_case};
use tolerant::{SERVERS, Server, accepted};

fuzz_target!(|bytes: &[u8]| {
    if bytes.first() != Some(&b'/') {
        return;
    }
    let Some(resource) = accepted(bytes) else { return };
    for Server { name, serve } in SERVERS {
        let Some(path) = serve(bytes) else { continue };
        let path = if path.len() > 1 { path.strip_suffix(b"/").unwrap_or(&path) } else { &path };
        assert_eq!(path, resource.as_bytes(), "{name} serves {:?}", String::from_utf8_lossy(path));
    }
    // What is one path is one resource: its own normal form, in any case.
    let folded = without_case(&resource);
    assert_eq!(without_case(&folded), folded);
});
