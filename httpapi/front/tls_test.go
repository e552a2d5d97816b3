package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// authority is a certificate that names itself, as PEM.
func authority(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{"node.test"},
		NotBefore: time.Now().
			Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: der},
	), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// files puts a new certificate of that name into the place of the files of c: each is another file,
// however soon it comes after the last.
func files(t testing.TB, c TLSConfig, name string) {
	t.Helper()
	cert, key := authority(t, name)
	for path, raw := range map[string][]byte{c.CertPath: cert, c.KeyPath: key} {
		if err := errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
}

func withTLS(t testing.TB) func(*setup) {
	dir := t.TempDir()
	c := TLSConfig{Enabled: true, CertPath: filepath.Join(dir, "cert.pem"), KeyPath: filepath.Join(dir, "key.pem")}
	files(t, c, "first")
	return func(s *setup) { s.tls = c }
}

// hello makes a handshake and returns the connection.
func hello(t testing.TB, r *rig, change func(*tls.Config)) (*tls.Conn, error) {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true, ServerName: "node.test"}
	if change != nil {
		change(cfg)
	}
	c := tls.Client(r.dial(t), cfg)
	return c, c.Handshake()
}

// lines is a log to look into.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func nameOf(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }

func TestTLSIsOnePointThree(t *testing.T) {
	r := newRig(t, withTLS(t)).listening(t)
	c, err := hello(t, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := c.ConnectionState()
	if st.Version != tls.VersionTLS13 || st.CurveID != tls.X25519MLKEM768 || nameOf(c) != "first" {
		t.Errorf("version %x, curve %v, of %s", st.Version, st.CurveID, nameOf(c))
	}
	if status, body, _ := ask(t, c, "/"); status != http.StatusOK || body != "127.0.0.1" {
		t.Errorf("%d %q", status, body)
	}
	if status, body, _ := ask(t, c, "/tls"); status != http.StatusOK || body != "TLS 1.3" {
		t.Errorf("%d %q: the handler does not see the TLS state", status, body)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	if status, body, _ := answer(t, c); status != http.StatusBadRequest || !strings.Contains(body, "malformed") {
		t.Errorf("%d %q, want a problem over TLS too", status, body)
	}
	if r.URL() != "https://"+r.Addr() {
		t.Error(r.URL())
	}
	if _, err := hello(t, r, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }); err == nil {
		t.Error("a client of TLS 1.2 was admitted")
	}
	if c, err := hello(t, r, func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }); err != nil ||
		c.ConnectionState().NegotiatedProtocol != "http/1.1" {
		t.Errorf("%v, want HTTP/1.1 agreed on", err)
	}
	waitFor(t, "count of the failed handshake",
		func() bool { return sum(t, r.metrics, "tls_handshake_failures_total") == 1 })
}

func TestFailedHandshakesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, withTLS(t), func(s *setup) { s.cfg.ReadTimeout = shortRead }).listening(t)
	plain := r.dial(t)
	if status, body, _ := ask(t, plain, "/"); status != http.StatusBadRequest || !strings.Contains(body, "use https") {
		t.Errorf("plain HTTP: %d %q, want a word on TLS", status, body)
	}
	garbage := r.dial(t)
	_, _ = io.WriteString(garbage, "\x00\x01\x02\x03\x04\x05\x06\x07")
	if raw, _ := io.ReadAll(garbage); strings.Contains(string(raw), "HTTP") {
		t.Errorf("garbage got %q", raw)
	}
	_ = r.dial(t).Close() // a port check
	if raw, err := io.ReadAll(r.dial(t)); len(raw) > 0 || err != nil {
		t.Errorf("a silent client got %q, %v", raw, err)
	}
	waitFor(t, "three failures", func() bool { return sum(t, r.metrics, "tls_handshake_failures_total") == 3 })
	if got := r.tally(); got["malformed"] != 1 || got["timeout"] != 1 || got["node read"] != 1 || len(got) != 3 {
		t.Errorf("counted %v", got)
	}
	waitFor(t, "connections to go", func() bool { return r.Conns() == 0 })
}

func TestConnectionsOverTheCapAreClosedUnderTLS(t *testing.T) {
	r := newRig(t, withTLS(t), noReserve, func(s *setup) { s.cfg.MaxConns = 1 }).listening(t)
	c, err := hello(t, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	if raw, _ := io.ReadAll(r.dial(t)); len(raw) > 0 {
		t.Errorf("got %q in the clear", raw)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", "total"); got != 1 {
		t.Errorf("conn_rejects_total = %v", got)
	}
}

func TestKeyFileMustBeClosedToOthers(t *testing.T) {
	for _, tt := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o400, true}, {0o604, false}, {0o660, false}} {
		with := withTLS(t)
		s := &setup{}
		with(s)
		if err := os.Chmod(s.tls.KeyPath, tt.mode); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, with)
		err := r.Listen(t.Context())
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", tt.mode, err)
		}
		_ = r.Shutdown(t.Context())
	}
}

// What root lends to a group, as Debian does with ssl-cert and service managers with credentials,
// is closed enough.
func TestKeyOfRootMayBeReadByItsGroup(t *testing.T) {
	for _, tt := range []struct {
		mode os.FileMode
		uid  uint32
		ok   bool
	}{
		{0o640, 0, true}, {0o440, 0, true}, {0o660, 0, false}, {0o650, 0, false}, {0o644, 0, false}, {0o640, 1000, false}, {0o600, 1000, true},
	} {
		if got := closedKey(tt.mode, tt.uid); got != tt.ok {
			t.Errorf("mode %o of %d: %v", tt.mode, tt.uid, got)
		}
	}
}

// The certificate changes while clients keep coming: no client is refused, and from the reload on
// each meets the new one.
func TestCertificateChangesUnderLoad(t *testing.T) {
	r := newRig(t, withTLS(t)).listening(t)
	var stop atomic.Bool
	var clients sync.WaitGroup
	var seen sync.Map
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: "node.test"}}
				c, err := d.DialContext(t.Context(), "tcp", r.Addr())
				if err != nil {
					t.Errorf("handshake: %v", err)
					return
				}
				seen.Store(nameOf(c.(*tls.Conn)), true)
				if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
					t.Errorf("%d", status)
				}
				_ = c.Close()
			}
		})
	}
	for _, name := range []string{"second", "third", "fourth"} {
		files(t, r.tls, name)
		r.reload(t, func(*setup) {})
		c, err := hello(t, r, nil)
		if err != nil || nameOf(c) != name {
			t.Errorf("after the reload: %v, want %s", err, name)
		}
		_ = c.Close()
	}
	waitFor(t, "a client that meets the last", func() bool { _, ok := seen.Load("fourth"); return ok })
	stop.Store(true)
	clients.Wait()
}

func TestBadCertificateKeepsTheOldOne(t *testing.T) {
	r := newRig(t, withTLS(t)).listening(t)
	good, _ := os.ReadFile(r.tls.KeyPath)
	_, other := authority(t, "other")
	for _, tt := range []struct {
		doc  string
		harm func() error
	}{
		{"no certificate", func() error { return os.WriteFile(r.tls.CertPath, []byte("x"), 0o600) }},
		{"another's key", func() error { files(t, r.tls, "lost"); return os.WriteFile(r.tls.KeyPath, other, 0o600) }},
		{"no key", func() error { return os.Remove(r.tls.KeyPath) }},
		{"an open key", func() error { return os.WriteFile(r.tls.KeyPath, good, 0o644) }},
	} {
		if err := tt.harm(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Prepare(t.Context(), r.cfg, r.tls, r.uds); err == nil {
			t.Errorf("%s: no error", tt.doc)
		}
		if c, err := hello(t, r, nil); err != nil || nameOf(c) != "first" {
			t.Errorf("%s: %v, want the old one kept", tt.doc, err)
		}
	}
}

// A handshake that comes ten seconds after the last look sees that the files have changed.
func TestChangedFilesAreSeen(t *testing.T) {
	var log lines
	r := newRig(t, withTLS(t), func(s *setup) { s.o.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }).listening(t)
	later := func() { r.certs.checked.Add(-int64(checkEvery)) }
	files(t, r.tls, "second")
	if c, err := hello(t, r, nil); err != nil || nameOf(c) != "first" {
		t.Errorf("%v: looked before its time", err)
	}
	later()
	if c, err := hello(t, r, nil); err != nil || nameOf(c) != "second" {
		t.Errorf("%v: did not see the change", err)
	}
	if err := os.WriteFile(r.tls.CertPath, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		later()
		if c, err := hello(t, r, nil); err != nil || nameOf(c) != "second" {
			t.Errorf("%v: want the good one kept", err)
		}
	}
	if got := strings.Count(log.String(), "tls.certificate_kept"); got != 1 {
		t.Errorf("the bad files were logged %d times, want once", got)
	}
	files(t, r.tls, "third")
	later()
	if c, err := hello(t, r, nil); err != nil || nameOf(c) != "third" {
		t.Errorf("%v: did not see them mended", err)
	}
}

// Files that could not be read when they had changed, as when there are too many open, are read
// later.
func TestReadingIsTriedAgain(t *testing.T) {
	r := newRig(t, withTLS(t)).listening(t)
	files(t, r.tls, "second")
	stamp := stampOf(r.tls)
	r.certs.warned.Store(&stamp)
	r.certs.checked.Add(-int64(checkEvery))
	if c, err := hello(t, r, nil); err != nil || nameOf(c) != "second" {
		t.Errorf("%v: not tried again", err)
	}
}

// Close does not wait for a client that has let the kernel's buffers fill up: the end of the node
// would wait too.
func TestCloseDoesNotWait(t *testing.T) {
	r := newRig(t, withTLS(t)).listening(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := r.tcp.admit(r.tcp.generation(), accepted).(*tlsConn)
	shaken := make(chan error, 1)
	go func() { shaken <- tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	c.ConnectionState()
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 1} { // until the client, which reads nothing, takes not a byte more
		for err = nil; err == nil; {
			_ = c.raw.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			_, err = c.raw.Write(make([]byte, size))
		}
	}
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second { // crypto/tls waits for 5
		t.Errorf("it took %s", took)
	}
	if r.Conns() != 0 {
		t.Error("its slot is still taken")
	}
}

var _ net.Conn = (*tlsConn)(nil)

// The names of the certificate are hosts of the node while it serves TLS.
func TestCertified(t *testing.T) {
	secure, plain := newRig(t, withTLS(t)).listening(t), newRig(t).listening(t)
	for host, want := range map[string]bool{"node.test": true, "NODE.test": true, "evil.test": false, "": false} {
		if got := secure.Certified(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
		if plain.Certified(host) {
			t.Errorf("%q without TLS", host)
		}
	}
}
