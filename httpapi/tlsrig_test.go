package httpapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// withTLS has a rig serve TLS, with a certificate that vouches for itself.
func withTLS(t testing.TB) func(*Settings, *Deps) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"node.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(c *Settings, _ *Deps) { c.TLS.Enabled, c.TLS.CertPath, c.TLS.KeyPath = true, cert, key }
}

// trusting lets clients of tests take that certificate.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// open opens a bare connection, through TLS if the rig speaks that.
func (r *rig) open(t testing.TB) net.Conn {
	t.Helper()
	c := r.dial(t)
	if r.URL() == "https://"+r.Addr() {
		c = tls.Client(c, trusting())
	}
	return c
}

// overBoth runs a test of a listening rig over TCP and over TLS, side by side.
func overBoth(t *testing.T, change func(*Settings, *Deps), test func(t *testing.T, r *rig)) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t, change).listening(t))
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, change, withTLS(t)).listening(t)
		r.url = "https://" + r.Addr()
		r.client.Transport.(describedTransport).RoundTripper.(*http.Transport).TLSClientConfig = trusting()
		test(t, r)
	})
}
