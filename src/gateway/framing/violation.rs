//! What is wrong with a request's bytes, in words for the client.

/// Why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("a line ends with a bare LF; lines end with CR LF (RFC 9112 §2.2)")]
    BareLineFeed,
    #[error(
        "the head has a bare CR, a NUL or another control character (RFC 9112 §2.2, RFC 9110 §5.5)"
    )]
    Control,
    #[error(
        "the request line is not METHOD TARGET HTTP/1.1, with one space between them (RFC 9112 §3)"
    )]
    RequestLine,
    #[error("the request target has a #, and servers differ in what they take for the path then")]
    Fragment,
    #[error("a header field is folded over two lines (RFC 9112 §5.2)")]
    Folded,
    #[error(
        "a header field has no name, or a character in it that no name has, such as a space before the colon (RFC 9112 §5.1)"
    )]
    FieldName,
    #[error("Content-Length is not one decimal number, sent once (RFC 9112 §6.3)")]
    ContentLength,
    #[error("the only Transfer-Encoding is chunked, sent once (RFC 9112 §6.1)")]
    TransferEncoding,
    #[error(
        "the request has both Content-Length and Transfer-Encoding; send one of them (RFC 9112 §6.1)"
    )]
    TwoLengths,
    #[error("HTTP/1.0 has no Transfer-Encoding (RFC 9112 §6.1)")]
    OldChunked,
    #[error("the request's head is too large")]
    HeadTooLarge,
    #[error("a chunk's size is not 1 to 16 hexadecimal digits (RFC 9112 §7.1)")]
    ChunkSize,
    #[error("a chunk's extensions are malformed or too long (RFC 9112 §7.1.1)")]
    ChunkExtension,
    #[error("a chunk is not followed by CR LF where its size says that it ends (RFC 9112 §7.1)")]
    ChunkEnd,
}
