//! The numbers of the stack's own errors, as programs on other threads see them.

use floodwall_tcp::{ListenError, OpenError};

use crate::sockets::error::{SendError, StartError};
use crate::tcp::error::TcpError;
use floodwall_remote::worker::Errno;

impl From<SendError> for Errno {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NoRoute(_) => Self::NO_ROUTE,
            SendError::NoSource(_) | SendError::AddressGone(_) => Self::NOT_OURS,
            SendError::NotConnected => Self::NO_DESTINATION,
            SendError::Socket(error) => error.into(),
        }
    }
}

impl From<TcpError> for Errno {
    fn from(error: TcpError) -> Self {
        match error {
            TcpError::Off => Self::NO_PROTOCOL,
            TcpError::NotOurs(_) => Self::NOT_OURS,
            TcpError::NoRoute(_) => Self::NO_ROUTE,
            TcpError::Open(OpenError::TooMany) | TcpError::Listen(ListenError::TooMany) => {
                Self::TOO_MANY
            }
            TcpError::Listen(ListenError::InUse) => Self::IN_USE,
            TcpError::Open(OpenError::InUse | OpenError::NoPort) => Self::NOT_OURS,
            _ => Self::INVALID,
        }
    }
}

impl From<StartError> for Errno {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Bind(error) => error.into(),
            StartError::NotOurs(_) => Self::NOT_OURS,
            StartError::Group(error) => error.into(),
            _ => Self::TOO_MANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use floodwall_udp::SendError as UdpSendError;

    use super::*;

    #[test]
    fn errors_of_the_stack_have_the_numbers_of_the_same_errors_below() {
        let would_block = UdpSendError::WouldBlock;
        let ip = core::net::IpAddr::from([0; 4]);
        assert_eq!(Errno::from(SendError::NotConnected), Errno::NO_DESTINATION);
        assert_eq!(Errno::from(SendError::Socket(would_block)), Errno::from(would_block));
        assert_eq!(Errno::from(StartError::NotOurs(ip)), Errno::NOT_OURS);
    }
}
