//! A client's bytes, checked before hyper reads them.
//!
//! hyper takes much that RFC 9112 says to refuse: a bare LF, a `#` in the target, both length fields, two equal
//! ones, chunk sizes with something behind them. What it takes it makes uniform, so that nothing of it can be
//! seen afterwards. [`Framed`] lies between the socket and hyper and follows the bytes by itself, from head to
//! body to next head ([`scan`]). It hands on what it has checked and stops at the first byte that it refuses: hyper
//! is then told that the client has closed its end, as soon as it has answered what came before, and whoever
//! serves the connection says why ([`Framed::into_parts`]). So hyper never sees a whole head that is refused.
//!
//! Invariant: where hyper finds the end of a request is where the scan found it.
//! Deliberately absent: everything that can be judged from a parsed head (`head.rs`, `target.rs`), since HTTP/2
//! has that too; and any copying: bytes are looked at where they were read.

mod chunk;
mod lines;
mod scan;
mod violation;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::scan::{Scan, Stop};
pub(super) use self::violation::Violation;
use super::watch::Watch;

/// How a connection's bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Clean,
    /// The client was not told why yet.
    HeadRefused(Violation),
    /// The client was told why in the answer to its request, unless that was answered before.
    BodyRefused,
}

/// See the module.
pub(super) struct Framed<S> {
    stream: S,
    watch: Arc<Watch>,
    scan: Scan,
    /// Heads that hyper was given whole. It wraps.
    heads: u32,
    /// Where the bytes end that hyper may have.
    stop: Option<Stop>,
    /// hyper was told that nothing follows.
    is_told: bool,
    /// Whom to wake when hyper has answered what came before.
    waiting: Option<Waker>,
}

impl<S> Framed<S> {
    /// `head_bytes` bounds a head, and the trailers of a body.
    pub(super) fn new(stream: S, watch: &Arc<Watch>, head_bytes: usize) -> Framed<S> {
        Framed {
            stream,
            watch: Arc::clone(watch),
            scan: Scan::new(head_bytes),
            heads: 0,
            stop: None,
            is_told: false,
            waiting: None,
        }
    }

    /// The stream, and what its bytes had to do with the end of the connection.
    pub(super) fn into_parts(self) -> (S, Verdict) {
        let verdict = match self.stop {
            Some(stop) if stop.is_in_body => Verdict::BodyRefused,
            Some(stop) if self.is_told => Verdict::HeadRefused(stop.violation),
            // Or hyper had done with the connection before it came to what is refused.
            Some(_) | None => Verdict::Clean,
        };
        (self.stream, verdict)
    }

    /// Whether every request whose head hyper was given has its answer.
    fn has_answered_all(&self) -> bool {
        !self.watch.is_serving() && self.watch.requests() == self.heads
    }

    /// Ends what hyper reads: in a body at once, which breaks the body off; between two requests as soon as
    /// those before are answered, since hyper takes an early end for a client that left.
    fn poll_end(&mut self, stop: Stop, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if stop.is_in_body {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, stop.violation)));
        }
        if !self.has_answered_all() {
            self.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.is_told = true;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(stop) = self.stop {
            return self.poll_end(stop, cx);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let scanned = self.scan.feed(&buffer.filled()[before..]);
        self.heads = self.heads.wrapping_add(scanned.heads);
        if let Some(stop) = scanned.stop {
            self.stop = Some(stop);
            buffer.set_filled(before + stop.at);
            if stop.at == 0 {
                return self.poll_end(stop, cx);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    /// An answer ends with a flush, and whoever flushes takes note of it before the task runs again.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // Not at every flush, which there is one of whenever the connection is worked on: that would wake it again.
        if self.has_answered_all()
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
        Poll::Ready(Ok(()))
    }

    /// Where something is left to be said to the client, its end stays open.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_told {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::gateway::testing::{self, Wakes};

    #[tokio::test]
    async fn who_waits_to_end_is_woken_by_the_last_answer_and_by_no_flush_before() {
        let (mut client, stream) = tokio::io::duplex(4096);
        let watch = testing::watch();
        let mut framed = Framed::new(stream, &watch, 8192);
        let good = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
        let both = [good, &b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n"[..]].concat();
        client.write_all(&both).await.unwrap();
        let (wakes, waker) = Wakes::new();
        let mut cx = Context::from_waker(&waker);
        let mut bytes = [0; 1024];
        let mut buffer = ReadBuf::new(&mut bytes);
        assert!(Pin::new(&mut framed).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), good);

        watch.serving();
        // As hyper does whenever it is polled: it looks whether the client has left, and flushes.
        for _ in 0..3 {
            assert!(Pin::new(&mut framed).poll_read(&mut cx, &mut buffer).is_pending());
            assert!(Pin::new(&mut framed).poll_flush(&mut cx).is_ready());
        }
        assert_eq!(wakes.count(), 0);
        watch.answered();
        watch.flushed();
        assert!(Pin::new(&mut framed).poll_flush(&mut cx).is_ready());
        assert_eq!(wakes.count(), 1);
        assert!(Pin::new(&mut framed).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), good, "nothing follows");
    }
}
