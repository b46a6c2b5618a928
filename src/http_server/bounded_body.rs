//! A request's body that is neither too large nor too slow.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive within {} s", .0.as_secs_f32())]
    TooSlow(Duration),
    #[error("the body broke off: {0}")]
    Broken(axum::Error),
}

/// See the module. The time begins when it is read.
pub(super) struct BoundedBody {
    body: Body,
    left: usize,
    most: usize,
    limit: Duration,
    late: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    pub(super) const fn new(body: Body, most: usize, limit: Duration) -> BoundedBody {
        BoundedBody { body, left: most, most, limit, late: None }
    }
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let limit = self.limit;
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
            ready!(late.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyError::TooSlow(limit))));
        };
        let Some(frame) = frame.transpose().map_err(BodyError::Broken)? else {
            return Poll::Ready(None);
        };
        let length = frame.data_ref().map_or(0, Bytes::len);
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(BodyError::TooLarge(self.most)))),
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
