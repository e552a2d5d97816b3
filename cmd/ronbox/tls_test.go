package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
)

// authority is a CA that signs the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // path of the PEM file for --ca-file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate for 127.0.0.1 and localhost and its key. It replaces each file
// atomically, as a renewal does.
func (a *authority) issue(t *testing.T, serial int64, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "node"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "PRIVATE KEY", secret)
	writePEM(t, certFile, "CERTIFICATE", der)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serial returns the serial number of the certificate that a new connection receives.
func (a *authority) serial(t *testing.T, url string) int64 {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"),
		&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// After SIGHUP new connections receive the renewed certificate. An unreadable certificate changes
// nothing. No request is lost.
func TestCertificateChangesUnderLoad(t *testing.T) {
	skipRaceOnly(t)
	ca := newAuthority(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key")
	ca.issue(t, 100, cert, key)
	b := fileBox(
		t,
		fmt.Sprintf(
			"server.bind = \"127.0.0.1:0\"\nlog.level = \"error\"\n[tls]\nenabled = true\ncert_path = %q\nkey_path "+
				"= %q\n",
			cert,
			key,
		),
	)
	p := b.start(t)
	url := b.url(t)
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("the node says it is at %s", url)
	}
	load := press(t, 4, func() (*client.Client, error) { return client.New(client.Options{URL: url, CAFile: ca.file}) })
	if got := ca.serial(t, url); got != 100 {
		t.Errorf("at first certificate %d is shown", got)
	}
	hangup := func() {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	ca.issue(t, 101, cert, key)
	hangup()
	until(t, "the new certificate is shown", func() bool { return ca.serial(t, url) == 101 })
	load.await(t, 50)
	if err := os.WriteFile(cert, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := ronbox(t, b.args("config", "reload")...); r.code == cli.ExitDone {
		t.Errorf("a certificate that cannot be read is taken: %s", r.stdout)
	}
	if got := ca.serial(t, url); got != 101 {
		t.Errorf("after a bad certificate %d is shown", got)
	}
	ca.issue(t, 102, cert, key)
	hangup()
	until(t, "the next one is shown", func() bool { return ca.serial(t, url) == 102 })
	load.await(t, 50)
	load.off(t)
	for _, tt := range []struct {
		doc  string
		args []string
		want int
		say  string
	}{
		{"trusted by --ca-file", []string{"--url", url, "--ca-file", ca.file, "registry", "head"}, cli.ExitDone, ""},
		{"not without it", []string{"--url", url, "registry", "head"}, cli.ExitUnreachable, "--ca-file"},
		{"no such file", []string{"--url", url, "--ca-file", filepath.Join(dir, "none"), "registry", "head"},
			cli.ExitFailed, ""},
		{"no certificate in it", []string{"--url", url, "--ca-file", key, "registry", "head"}, cli.ExitUsage, ""},
		{"plain HTTP to it", []string{"--url", strings.Replace(url, "https", "http", 1), "registry", "head"},
			cli.ExitFailed, ""},
	} {
		if r := ronbox(t, tt.args...); r.code != tt.want || !strings.Contains(r.stderr, tt.say) {
			t.Errorf("%s: exit %d, want %d\n%s", tt.doc, r.code, tt.want, r.stderr)
		}
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}
