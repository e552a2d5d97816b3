package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	nodeLife      = 90 * 24 * time.Hour // of the certificate of a node
	backdate      = 24 * time.Hour      // tolerates clocks that differ
	scheme        = "ronbox"
)

// ErrStranger is returned for a certificate that is not a node certificate of this cluster.
var ErrStranger = errors.New("peer: not a node of this cluster")

// Pin is the SHA-256 of the public key (SPKI) of an authority.
type Pin [sha256.Size]byte

// Authority signs the node certificates of one cluster.
type Authority struct {
	cluster string
	cert    *x509.Certificate
	key     ed25519.PrivateKey
}

// NewID returns a new id of a cluster or of a server: a ULID.
func NewID(now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("draw an id: %w", err)
	}
	return id.String(), nil
}

// NewAuthority returns the authority of a new cluster with a new id.
func NewAuthority(now time.Time) (*Authority, error) {
	cluster, err := NewID(now)
	if err != nil {
		return nil, err
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	template, err := newTemplate(now, now.Add(authorityLife), "ronbox cluster "+cluster, nodeURI(cluster, ""))
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	return newAuthority(der, key)
}

func newAuthority(der []byte, key ed25519.PrivateKey) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	cluster, err := clusterOf(cert)
	if err != nil {
		return nil, err
	}
	if pub, ok := cert.PublicKey.(ed25519.PublicKey); !ok || !pub.Equal(key.Public()) {
		return nil, errors.New("the key of the authority does not belong to its certificate")
	}
	return &Authority{cluster: cluster, cert: cert, key: key}, nil
}

// ParseAuthority returns the authority with a certificate and a key in PEM.
func ParseAuthority(cert, key []byte) (*Authority, error) {
	der, err := pemBlock(cert, certBlock)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	private, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	return newAuthority(der, private)
}

// Cluster returns the id of the cluster.
func (a *Authority) Cluster() string { return a.cluster }

// Pin returns the pin of the authority.
func (a *Authority) Pin() Pin { return pinOf(a.cert) }

// CertPEM returns the certificate in PEM.
func (a *Authority) CertPEM() []byte { return encodePEM(certBlock, a.cert.Raw) }

// KeyPEM returns the private key in PEM.
func (a *Authority) KeyPEM() ([]byte, error) { return encodeKey(a.key) }

// Issue returns a node certificate in PEM for the key pub of a server. It is valid from one day
// before now until 90 days after it. Issue returns an error if server is not a ULID.
func (a *Authority) Issue(server string, pub ed25519.PublicKey, now time.Time) ([]byte, error) {
	return a.issue(server, pub, now, now.Add(nodeLife))
}

func (a *Authority) issue(server string, pub ed25519.PublicKey, now, ends time.Time) ([]byte, error) {
	if !ValidID(server) || len(pub) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("issue a certificate: server %.32q or its key is malformed", server)
	}
	template, err := newTemplate(now, ends, "ronbox node "+server, nodeURI(a.cluster, server))
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, pub, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	return encodePEM(certBlock, der), nil
}

func newTemplate(now, ends time.Time, name string, uri *url.URL) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate).UTC(),
		NotAfter:     ends.UTC(),
		URIs:         []*url.URL{uri},
	}, nil
}

// ValidID reports whether s is an id of a cluster or of a server.
func ValidID(s string) bool {
	id, err := ulid.ParseStrict(s)
	return err == nil && id.String() == s
}

// nodeURI returns the URI SAN of a server, or of the authority if server is "".
func nodeURI(cluster, server string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: cluster}
	if server != "" {
		u.Path = "/" + server
	}
	return u
}

// clusterOf returns the cluster of an authority.
func clusterOf(cert *x509.Certificate) (string, error) {
	if len(cert.URIs) != 1 || !cert.IsCA || !ValidID(cert.URIs[0].Host) ||
		*cert.URIs[0] != *nodeURI(cert.URIs[0].Host, "") {
		return "", errors.New("the certificate is not that of an authority")
	}
	return cert.URIs[0].Host, nil
}

// serverOf verifies that the authority ca signed the certificate of a node and returns the id of
// the node. It returns ErrStranger otherwise. It does not judge the dates.
func serverOf(cert, ca *x509.Certificate) (string, error) {
	cluster, err := clusterOf(ca)
	if err != nil {
		return "", err
	}
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != scheme {
		return "", fmt.Errorf("%w: its certificate names no node", ErrStranger)
	}
	server := strings.TrimPrefix(cert.URIs[0].Path, "/")
	switch {
	case cert.URIs[0].Host != cluster:
		return "", fmt.Errorf("%w: its certificate is of cluster %.32q, this one is %s",
			ErrStranger, cert.URIs[0].Host, cluster)
	case !ValidID(server) || *cert.URIs[0] != *nodeURI(cluster, server):
		return "", fmt.Errorf("%w: its certificate names no node", ErrStranger)
	}
	if _, ok := cert.PublicKey.(ed25519.PublicKey); !ok {
		return "", fmt.Errorf("%w: the key of its certificate is not ed25519", ErrStranger)
	}
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return "", fmt.Errorf("%w: another authority signed its certificate: %w", ErrStranger, err)
	}
	return server, nil
}

// checkDates returns ErrStranger unless the certificate is valid at a time.
func checkDates(cert *x509.Certificate, now time.Time) error {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return fmt.Errorf("%w: its certificate is valid from %s until %s, and the clock shows %s",
			ErrStranger, stamp(cert.NotBefore), stamp(cert.NotAfter), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// PinOf returns the pin of the authority with a certificate in PEM.
func PinOf(caCert []byte) (Pin, error) {
	ca, err := parseCert(caCert)
	if err != nil {
		return Pin{}, fmt.Errorf("certificate of the authority: %w", err)
	}
	return pinOf(ca), nil
}

func pinOf(ca *x509.Certificate) Pin { return sha256.Sum256(ca.RawSubjectPublicKeyInfo) }

// Types of PEM blocks.
const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

func encodePEM(block string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der})
}

// pemBlock returns the content of text, which must be one PEM block.
func pemBlock(text []byte, block string) ([]byte, error) {
	b, rest := pem.Decode(text)
	if b == nil || b.Type != block || strings.TrimSpace(string(rest)) != "" {
		return nil, fmt.Errorf("is not one PEM block %s", block)
	}
	return b.Bytes, nil
}

func encodeKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encodePEM(keyBlock, der), nil
}

func parseKey(text []byte) (ed25519.PrivateKey, error) {
	der, err := pemBlock(text, keyBlock)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("is a %T, not ed25519", key)
	}
	return private, nil
}
