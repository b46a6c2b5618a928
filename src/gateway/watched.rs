//! The bytes of a client's connection of HTTP/1.1, between the socket and hyper: what of them the watch has to know,
//! which HTTP they are, and the two things that hyper does not say for itself, interim answers ([`super::interim`])
//! and why a head was refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::either::Either;

use super::client_stream::ClientStream;
use super::preface::{self, Speaks};
use super::watch::Watch;

/// See the module.
pub(super) struct Watched {
    stream: ClientStream,
    watch: Arc<Watch>,
    first: First,
    /// The status of what hyper said to a head that it cannot read. That is the only thing that it
    /// writes while no request is in work; it is kept back, so that it can be said in words.
    bare_answer: Option<[u8; 3]>,
    /// Of what hyper has begun to write not all is flushed: it may hold more of an answer, or the next one.
    is_amid: bool,
    /// Interim answers, as far as they are not written yet.
    interim: Vec<u8>,
}

/// What is left of a connection that hyper is done with.
pub(super) enum Left {
    /// It turned out to speak HTTP/2, and all that it said can be read again.
    Http2(ClientStream),
    Http1 {
        stream: ClientStream,
        /// See [`Watched`].
        bare_answer: Option<[u8; 3]>,
    },
}

/// What is known of a connection's first bytes.
enum First {
    /// HTTP/1.1, so that nobody looks any more.
    Http1,
    /// They may become the preface of HTTP/2, and are kept until that is clear.
    NotClear(Vec<u8>),
    /// HTTP/2, and what was read of it.
    Http2(Vec<u8>),
}

impl Watched {
    pub(super) fn new(stream: ClientStream, watch: Arc<Watch>) -> Watched {
        // Over TLS it was agreed on what is spoken.
        let first = match stream {
            Either::Left(_) => First::NotClear(Vec::new()),
            Either::Right(_) => First::Http1,
        };
        let interim = Vec::new();
        Watched { stream, watch, first, bare_answer: None, is_amid: false, interim }
    }

    pub(super) fn into_left(self) -> Left {
        let Watched { mut stream, first, bare_answer, .. } = self;
        let First::Http2(bytes) = first else { return Left::Http1 { stream, bare_answer } };
        // Only of plain text is anything read too early.
        if let Either::Left(plain) = &mut stream {
            plain.put_back(&bytes);
        }
        Left::Http2(stream)
    }

    fn keep_back(&mut self, bare_answer: &[u8]) {
        let status = bare_answer.get(9..12).and_then(|status| status.try_into().ok());
        self.bare_answer.get_or_insert(status.unwrap_or_default());
    }

    /// Takes interim answers over to be written next, if they cannot get into another answer.
    fn collect(&mut self) {
        if !self.watch.interim.has_some() {
            return;
        }
        let heads = self.watch.interim.take();
        // Else an answer before this one is not written to its end, and they would come too late.
        if !self.is_amid {
            self.interim.extend_from_slice(&heads);
        }
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.interim);
            self.watch.wrote(written.is_ready());
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => drop(self.interim.drain(..length)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads until it is clear what is spoken. HTTP/2 ends the connection of HTTP/1.1 with an error.
    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        while let First::NotClear(kept) = &mut self.first {
            buffer.put_slice(kept);
            let before = buffer.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
            if !matches!(read, Poll::Ready(Ok(()))) {
                buffer.set_filled(start);
                return read;
            }
            let first = &buffer.filled()[start..];
            let is_end = buffer.filled().len() == before;
            if !is_end {
                self.watch.received();
            }
            match preface::judge(first) {
                Speaks::NotClear if !is_end => {
                    *kept = first.to_vec();
                    buffer.set_filled(start);
                }
                Speaks::Http2 => {
                    self.first = First::Http2(first.to_vec());
                    buffer.set_filled(start);
                    return Poll::Ready(Err(io::Error::other("this is HTTP/2")));
                }
                Speaks::Http1 | Speaks::NotClear => self.first = First::Http1,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !matches!(self.first, First::Http1) {
            return self.poll_first(cx, buffer);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watch.received();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.watch.is_serving() {
            self.collect();
            self.is_amid = true;
            ready!(self.poll_interim(cx))?;
            let written = Pin::new(&mut self.stream).poll_write(cx, data);
            self.watch.wrote(written.is_ready());
            return written;
        }
        self.keep_back(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let flushed = Pin::new(&mut self.stream).poll_flush(cx);
            // TLS takes what is written into a buffer of its own, and only here says that the client takes nothing.
            if self.watch.is_serving() && (self.interim.is_empty() || flushed.is_pending()) {
                self.watch.wrote(flushed.is_ready());
            }
            ready!(flushed)?;
            self.is_amid = false;
            if self.interim.is_empty() {
                self.collect();
            }
            if self.interim.is_empty() {
                break;
            }
            ready!(self.poll_interim(cx))?;
        }
        self.watch.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper is done with it, and somebody else is not.
        if self.bare_answer.is_some() || matches!(self.first, First::Http2(_)) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::gateway::client_stream::Unread;
    use crate::gateway::testing;
    use crate::gateway::watch::Patience;

    const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

    /// Both ends of a connection on which a request is in work.
    async fn serving() -> (Watched, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let to = listener.local_addr().expect("it is bound");
        let (peer, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
        let (stream, _) = accepted.expect("it is being connected to");
        let watch = testing::watch();
        watch.serving();
        let stream = Either::Left(Unread::new(stream, Vec::new()));
        (Watched::new(stream, watch), peer.expect("it listens"))
    }

    /// The same, with a client that reads nothing, and how many bytes are on their way to it.
    async fn stuck() -> (Watched, TcpStream, usize) {
        let (mut watched, peer) = serving().await;
        let (mut sent, chunk) = (0, [b'x'; 64 * 1024]);
        while let Poll::Ready(written) =
            poll_fn(|cx| Poll::Ready(Pin::new(&mut watched).poll_write(cx, &chunk))).await
        {
            sent += written.expect("an open socket");
        }
        flush(&mut watched).await;
        (watched, peer, sent)
    }

    async fn is_flushed(watched: &mut Watched) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *watched).poll_flush(cx).is_ready())).await
    }

    async fn is_written(watched: &mut Watched, data: &[u8]) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *watched).poll_write(cx, data).is_ready())).await
    }

    /// Reads all, while what is left is written by `step`.
    async fn read_all(peer: &mut TcpStream, length: usize, mut step: impl AsyncFnMut()) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < length {
            step().await;
            let piece = (length - got.len()).div_ceil(50).min(64 * 1024);
            got.extend(read(peer, piece).await);
        }
        got
    }

    async fn write(watched: &mut Watched, data: &[u8]) -> usize {
        poll_fn(|cx| Pin::new(&mut *watched).poll_write(cx, data)).await.expect("an open socket")
    }

    async fn flush(watched: &mut Watched) {
        poll_fn(|cx| Pin::new(&mut *watched).poll_flush(cx)).await.expect("an open socket");
    }

    async fn read(peer: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = tokio::time::timeout(Duration::from_secs(10), peer.read_exact(&mut bytes));
        read.await.expect("it is there").expect("an open socket");
        bytes
    }

    #[tokio::test]
    async fn interim_answers_go_out_with_a_flush_or_before_what_is_written_next() {
        let (mut watched, mut peer) = serving().await;
        assert!(watched.watch.interim.put(INTERIM));
        flush(&mut watched).await;
        assert_eq!(read(&mut peer, INTERIM.len()).await, INTERIM);
        assert!(watched.watch.interim.put(INTERIM) && watched.watch.interim.put(INTERIM));
        watched.watch.interim.close();
        assert!(!watched.watch.interim.put(INTERIM), "the answer has begun");
        write(&mut watched, b"final").await;
        let both = [INTERIM, INTERIM, b"final"].concat();
        assert_eq!(read(&mut peer, both.len()).await, both);
    }

    #[tokio::test]
    async fn no_interim_answer_gets_into_an_answer_that_is_not_written_to_its_end() {
        let (mut watched, mut peer) = serving().await;
        // hyper has the rest of an answer in its buffer, and the next request in work.
        write(&mut watched, b"first ").await;
        watched.watch.serving();
        assert!(watched.watch.interim.put(INTERIM));
        write(&mut watched, b"answer").await;
        assert_eq!(read(&mut peer, 12).await, b"first answer");
        // Its own answer may be behind that already, so it is too late for good.
        flush(&mut watched).await;
        write(&mut watched, b"second").await;
        assert_eq!(read(&mut peer, 6).await, b"second");
        flush(&mut watched).await;
        assert!(watched.watch.interim.put(INTERIM));
        write(&mut watched, b"third").await;
        assert_eq!(read(&mut peer, INTERIM.len() + 5).await, [INTERIM, b"third"].concat());
    }

    #[tokio::test]
    async fn an_interim_answer_that_a_slow_client_takes_in_pieces_stays_whole() {
        let (mut watched, mut peer, sent) = stuck().await;
        let head = [INTERIM, &b"x: ".repeat(2000), b"\r\n\r\n"].concat();
        assert!(watched.watch.interim.put(&head) && watched.watch.interim.put(&head));
        let all = sent + 2 * head.len();
        let got = read_all(&mut peer, all, async || {
            is_flushed(&mut watched).await;
        })
        .await;
        assert!(is_flushed(&mut watched).await);
        assert!(got[..sent].iter().all(|byte| *byte == b'x'));
        assert!(got[sent..] == [&*head, &*head].concat());
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_makes_no_pile_of_interim_answers() {
        let (mut watched, _peer, _) = stuck().await;
        let head = [INTERIM, &b"x: ".repeat(1000), b"\r\n\r\n"].concat();
        let mut taken = 0;
        for _ in 0..1000 {
            taken += usize::from(watched.watch.interim.put(&head));
            assert!(!is_flushed(&mut watched).await || taken == 0);
        }
        assert!((1..=11).contains(&taken), "{taken} of 3 KB each");
    }

    #[tokio::test]
    async fn the_time_of_a_client_that_takes_nothing_runs_on_while_interim_answers_come() {
        let (mut watched, _peer, _) = stuck().await;
        let (period, hour) = (Duration::from_secs(1), Duration::from_hours(1));
        let patience = Patience { head: hour, answer: period * 5, rest: hour, age: hour };
        let head = [INTERIM, &b"x: ".repeat(1000), b"\r\n\r\n"].concat();
        while is_flushed(&mut watched).await {
            assert!(watched.watch.interim.put(&head), "there is room for a few bytes more");
        }
        let mut rounds = 0;
        while !watched.watch.is_overdue(period, &patience) {
            rounds += 1;
            watched.watch.interim.put(INTERIM);
            assert!(!is_flushed(&mut watched).await);
            assert!(rounds < 10, "its time does not run");
        }
    }

    #[tokio::test]
    async fn an_answer_that_waits_behind_its_interim_answer_keeps_those_of_the_next_out() {
        let (mut watched, mut peer, sent) = stuck().await;
        assert!(watched.watch.interim.put(INTERIM));
        let mut before = 1;
        while is_flushed(&mut watched).await {
            assert!(watched.watch.interim.put(INTERIM), "there is room for a few bytes more");
            before += 1;
        }
        watched.watch.interim.close();
        assert!(!is_written(&mut watched, b"first").await);
        // hyper has all of the first answer in its buffer and begins with the next request.
        watched.watch.serving();
        assert!(watched.watch.interim.put(INTERIM));
        let mut is_first_written = false;
        let read_on = sent.saturating_sub(1);
        let got = read_all(&mut peer, read_on, async || {
            is_first_written = is_first_written || is_written(&mut watched, b"first").await;
        })
        .await;
        assert!(is_first_written && got.iter().all(|byte| *byte == b'x'));
        flush(&mut watched).await;
        write(&mut watched, b"second").await;
        drop(watched);
        let mut rest = String::new();
        peer.read_to_string(&mut rest).await.expect("the end");
        let interim = std::str::from_utf8(INTERIM).expect("ASCII").repeat(before);
        assert_eq!(rest.trim_start_matches('x'), format!("{interim}firstsecond"));
    }
}
