//! HTTPS: the daemon's certificate, given or made, and the fingerprint that its clients recognise it by.
//!
//! A client has the fingerprint from the file that also holds the token, and takes no other certificate, no matter who
//! signed it. So a generated one is as good as one that was bought, and only the daemon has to be trusted. TLS 1.3
//! only: both ends are ours.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bellwether_core::InputError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, ServerConfig, SignatureScheme,
};

use crate::private::write_line;

/// What a server proves with who it is.
#[derive(Clone)]
pub struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
}

impl fmt::Debug for Identity {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        let hash = ring::digest::digest(&ring::digest::SHA256, certificate);
        Fingerprint(hash.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    ///
    /// ```
    /// use bellwether_serve::tls::Fingerprint;
    /// let text = format!("sha256:{}", "0f".repeat(32));
    /// assert_eq!(Fingerprint::parse(&text).unwrap().to_string(), text);
    /// assert!(Fingerprint::parse("sha256:0f").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<Fingerprint> {
        let hash = blake3::Hash::from_hex(text.trim().strip_prefix("sha256:")?).ok()?;
        Some(Fingerprint(*hash.as_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any 32 bytes can be shown as hexadecimal digits so.
        write!(f, "sha256:{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The identity in the files that a user names, each in PEM.
///
/// # Errors
///
/// Returns an error for files that cannot be read, hold something else, or do not belong together.
pub fn given(certificate: &Path, key: &Path) -> Result<Identity, InputError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| InputError::new(path.display().to_string(), error.to_string()))
    };
    let (certificate_pem, key_pem) = (read(certificate)?, read(key)?);
    identity(&certificate_pem, &key_pem, &certificate.display().to_string(), &key.display().to_string())
}

/// The identity that was made for this folder, or a new one for a server at `address`.
///
/// `identity.pem` is private; `certificate.pem` is the part that others may have.
///
/// # Errors
///
/// Returns an error for files that cannot be read or written.
pub(crate) fn own(folder: &Path, address: IpAddr) -> Result<Identity, InputError> {
    let (path, shown) = (folder.join("identity.pem"), folder.join("certificate.pem"));
    let place = path.display().to_string();
    let failed = |error: std::io::Error| InputError::new(&place, error.to_string());
    if !path.exists() {
        let made = make(address).map_err(|error| InputError::new(&place, error.to_string()))?;
        write_line(&path, &made).map_err(failed)?;
    }
    let pem = fs::read(&path).map_err(failed)?;
    let identity = identity(&pem, &pem, &place, &place)
        .map_err(|error| error.hint("remove it, and the daemon makes another one"))?;
    let end = pem.windows(KEY.len()).position(|part| part == KEY).unwrap_or(pem.len());
    write_line(&shown, &String::from_utf8_lossy(&pem[..end])).map_err(failed)?;
    Ok(identity)
}

/// What comes after the certificate in a file of ours.
const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----";

/// A self-signed certificate and its key, in PEM.
fn make(address: IpAddr) -> Result<String, rcgen::Error> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [address.to_string(), "localhost".into(), host.trim().to_owned()];
    // A machine may have a name that a certificate cannot have.
    let parameters = rcgen::CertificateParams::new(names.to_vec());
    let mut parameters = parameters.or_else(|_| rcgen::CertificateParams::new(names[..2].to_vec()))?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "bellwether serve");
    let key = rcgen::KeyPair::generate()?;
    Ok(parameters.self_signed(&key)?.pem() + &key.serialize_pem())
}

fn identity(
    certificate: &[u8],
    key: &[u8],
    certificate_place: &str,
    key_place: &str,
) -> Result<Identity, InputError> {
    let wrong = |place: &str, what: String| InputError::new(place, what).hint("name files in PEM");
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(certificate_place, format!("holds no certificate: {error}")))?;
    let first = chain.first().ok_or_else(|| wrong(certificate_place, "holds no certificate".into()))?;
    let fingerprint = Fingerprint::of(first);
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(key_place, format!("holds no private key: {error}")))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has ciphers for TLS 1.3").with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        wrong(key_place, format!("it and the certificate in {certificate_place} cannot be used: {error}"))
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Sessions are not resumed, so nothing is said after the handshake that a client has to read first.
    config.send_tls13_tickets = 0;
    Ok(Identity { config: Arc::new(config), fingerprint })
}

/// A client that takes this certificate and no other.
pub fn pinned(fingerprint: Fingerprint) -> Arc<ClientConfig> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has ciphers for TLS 1.3").dangerous();
    let verifier = Arc::new(Pinned { fingerprint, provider });
    let mut config = builder.with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Compares fingerprints. Names and dates do not count: they are what a third party says.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// Another certificate than the one that is known.
#[derive(Debug, thiserror::Error)]
#[error("its fingerprint is {0}")]
struct Changed(Fingerprint);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::of(certificate);
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Changed(shown)))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken here".into()))
    }

    /// The peer that shows the certificate has its key.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What is wrong with the other end's certificate, if that is why a connection failed.
pub fn distrust(error: &std::io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(changed))) => {
            format!("the certificate that is shown there is not the one that was pinned: {changed}")
        }
        rustls::Error::InvalidMessage(_) => "what answers there does not speak HTTPS".into(),
        error => format!("no secure connection: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let address = IpAddr::from([10, 0, 0, 1]);
        let first = own(folder.path(), address).unwrap();
        let again = own(folder.path(), address).unwrap();
        assert_eq!(first.fingerprint, again.fingerprint);
        let secret = folder.path().join("identity.pem");
        assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
        let shown = fs::read_to_string(folder.path().join("certificate.pem")).unwrap();
        assert!(shown.contains("BEGIN CERTIFICATE") && !shown.contains("PRIVATE"), "{shown}");
        // As files of the user's, also apart.
        let shown = folder.path().join("certificate.pem");
        assert_eq!(given(&shown, &secret).unwrap().fingerprint, first.fingerprint);
        let other = tempfile::tempdir().unwrap();
        own(other.path(), address).unwrap();
        for (certificate, key, what) in [
            (&shown, &other.path().join("identity.pem"), "cannot be used"),
            (&shown, &shown, "no private key"),
            (&folder.path().join("nothing"), &secret, "No such file"),
        ] {
            let error = given(certificate, key).unwrap_err();
            assert!(error.what.contains(what), "{error:?}");
        }
        fs::write(&secret, "nonsense").unwrap();
        let error = own(folder.path(), address).unwrap_err();
        assert!(error.what.contains("no certificate") && error.hint.contains("remove it"), "{error:?}");
    }
}
