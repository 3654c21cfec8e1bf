//! A [`Stream`] for tokio.

use std::io::{self, Read};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

/// A [`Stream`] that tokio's tasks read and write.
#[derive(Debug)]
pub struct AsyncStream(AsyncFd<Stream>);

impl AsyncStream {
    /// Makes the stream nonblocking and hands it to this thread's runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[expect(deprecated, reason = "unsound only for what changes its descriptor, and a stream keeps its own")]
    pub fn new(stream: Stream) -> io::Result<AsyncStream> {
        stream.set_nonblocking(true)?;
        AsyncFd::new(stream).map(AsyncStream)
    }

    fn poll_write_with(
        &self,
        context: &mut Context<'_>,
        mut body: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            // Otherwise the socket turned out to be full, and the next look waits for it.
            if let Ok(result) = ready.try_io(|stream| body(stream.get_ref())) {
                return Poll::Ready(result);
            }
        }
    }
}

impl AsyncRead for AsyncStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            // What was received and is not yet opened is read before the socket is asked, and only the socket says
            // that nothing is ready.
            if let Ok(result) = ready.try_io(|stream| stream.get_ref().read(room)) {
                return Poll::Ready(result.map(|count| buffer.advance(count)));
            }
        }
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.write_kept(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(context, |stream| stream.flush_kept().map(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Poll::Ready(self.0.get_ref().shutdown(Shutdown::Write))
    }
}

impl tonic::transport::server::Connected for AsyncStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
