//! Answers that no request made: to a head that is malformed, too large or too slow.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::client_stream::ClientStream;
use crate::problem::Problem;

/// How long the last words to a client may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Says it, and closes the connection once the client has done so, or had its time: closed while
/// the client still sends, the connection would be reset and the words lost.
pub(super) async fn say(mut stream: ClientStream, problem: &Problem) {
    let words = words(problem);
    let said = async {
        stream.write_all(&words).await?;
        stream.shutdown().await
    };
    if timeout(LAST_WORDS, said).await.is_ok_and(|said| said.is_ok()) {
        hear_out(stream).await;
    }
}

/// Reads what the client still sends, for nothing: the words that are on their way to it stay there.
pub(super) async fn hear_out(mut stream: ClientStream) {
    let heard = async {
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {}
    };
    // The connection is at its end either way.
    let _ = timeout(LAST_WORDS, heard).await;
}

fn words(problem: &Problem) -> Vec<u8> {
    let answer = problem.to_response();
    let mut words = format!("HTTP/1.1 {}\r\n", answer.status()).into_bytes();
    for (name, value) in answer.headers() {
        words.extend_from_slice(name.as_str().as_bytes());
        words.extend_from_slice(b": ");
        words.extend_from_slice(value.as_bytes());
        words.extend_from_slice(b"\r\n");
    }
    let length = answer.body().len();
    words.extend_from_slice(
        format!("content-length: {length}\r\nconnection: close\r\n\r\n").as_bytes(),
    );
    words.extend_from_slice(answer.body());
    words
}
