//! The client of a running daemon: where it is, how to know it, what can be asked of it.
//!
//! An [`Endpoint`] says where a daemon is and how to recognise it: by the socket of its state directory, or by the
//! file that it wrote for clients elsewhere. A [`Client`] asks it, with the types that the daemon itself answers with
//! ([`bellwether_serve::snapshot`]), and waits for a daemon that is being restarted. The crate prints nothing and
//! reads no command line.
//!
//! ```no_run
//! use bellwether_client::{Client, ClientError, Endpoint};
//! # fn main() -> Result<(), ClientError> {
//! let client = Client::new(Endpoint::StateDir("state".into()));
//! for job in client.jobs()? {
//!     println!("{}: {}, step {} of {}", job.name, job.state.name(), job.step, job.total_steps);
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod endpoint;
mod error;
mod events;
mod follow;
mod socket;
mod tls;

pub use client::{Act, Client};
pub use endpoint::{Address, Bearer, Endpoint, UNIX};
pub use error::ClientError;
pub use events::{Event, Events};
