package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// lookEvery is how often, at most, a handshake looks whether the files have changed.
const lookEvery = 10 * time.Second

// certs holds the certificate in force. A handshake reads a pointer; the first one after lookEvery also looks at the files.
type certs struct {
	log    hclog.Logger
	have   atomic.Pointer[pair] // nil while TLS is off
	born   time.Time
	looked atomic.Int64          // nanoseconds since born: a clock that is set back must not end the looking
	bad    atomic.Pointer[stamp] // of the files that were last told to be unusable
}

func newCerts(log hclog.Logger) *certs { return &certs{log: log, born: time.Now()} }

// pair is a certificate with its key, and the files it was read from.
type pair struct {
	cert  *tls.Certificate
	from  TLSConfig
	files stamp
}

// stamp tells a file from what it was: whatever happens to it or to its permissions changes one of these.
type stamp [2]struct {
	inode, size, seconds, nanos int64
}

// config makes what a generation answers handshakes with. Go's own choice of curves begins with X25519MLKEM768.
func (c *certs) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// get gives the certificate of a handshake.
func (c *certs) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := int64(time.Since(c.born))
	if last := c.looked.Load(); now-last >= int64(lookEvery) && c.looked.CompareAndSwap(last, now) {
		c.look()
	}
	if p := c.have.Load(); p != nil {
		return p.cert, nil
	}
	return nil, errors.New("no certificate")
}

// look reads the files again if they have changed. Those that cannot be used are told once, and tried again.
func (c *certs) look() {
	p := c.have.Load()
	if p == nil {
		return
	}
	files := stampOf(p.from)
	if files == p.files {
		return
	}
	err := c.reload()
	if err == nil {
		return
	}
	if told := c.bad.Swap(&files); told == nil || *told != files {
		c.log.Warn("tls.certificate_kept", "error", err.Error())
	}
}

// reload reads the files anew. What is in force stays when they cannot be used.
func (c *certs) reload() error {
	was := c.have.Load()
	if was == nil {
		return nil
	}
	next, err := readPair(was.from)
	if err != nil {
		return err
	}
	if c.have.CompareAndSwap(was, next) {
		c.log.Info("tls.certificate_loaded", "cert_path", next.from.CertPath, "not_after", next.cert.Leaf.NotAfter)
	}
	return nil
}

// put puts p in force, nil for none.
func (c *certs) put(p *pair) {
	c.have.Store(p)
	c.looked.Store(int64(time.Since(c.born)))
}

// readPair reads a certificate and its key. Dates are not judged: a node whose clock is wrong must start.
func readPair(from TLSConfig) (*pair, error) {
	files := stampOf(from) // before reading, so that a change meanwhile is seen later
	cert, err := os.ReadFile(from.CertPath)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_path: %w", err)
	}
	key, err := readKey(from.KeyPath)
	if err != nil {
		return nil, fmt.Errorf("tls.key_path: %w", err)
	}
	defer clear(key)
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_path %s with tls.key_path %s: %w", from.CertPath, from.KeyPath, err)
	}
	return &pair{cert: &both, from: from, files: files}, nil
}

// readKey reads a file that is closed to group and others.
func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !closedKey(info.Mode(), st.Uid) {
		return nil, fmt.Errorf("%s has mode %04o: close it to group and others (chmod 600); only root's may be read by its group (chmod 640)",
			path, info.Mode().Perm())
	}
	return io.ReadAll(io.LimitReader(f, maxKey))
}

// closedKey tells whether a file of that owner is closed to group and others. What belongs to root may be read by the
// group that root gave it, since a node that is not root has no other way to a key that it shares.
func closedKey(mode fs.FileMode, uid uint32) bool {
	open := mode.Perm() & 0o077
	return open == 0 || uid == 0 && open == 0o040
}

// maxKey is far above the PEM of any key.
const maxKey = 1 << 20

func stampOf(c TLSConfig) (s stamp) {
	for i, path := range []string{c.CertPath, c.KeyPath} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s[i].inode, s[i].size, s[i].seconds, s[i].nanos = int64(st.Ino), st.Size, int64(st.Ctim.Sec), int64(st.Ctim.Nsec)
		}
	}
	return s
}
