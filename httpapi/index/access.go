package index

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"ronbox/appliance/sig"
	"ronbox/engines/index"
)

// Access holds the bearer token and the CA certificates for calls of a peer. The zero Access has no
// token and uses the certificates of the system. It has no String method, so that a token is not
// printed.
type Access struct {
	ca    []byte // contents of index.ca_file
	roots *x509.CertPool
	token string
}

// ErrAccess is returned when a file of index.ca_file or index.peer_tokens cannot be used.
var ErrAccess = errors.New("peers cannot be asked")

// Size limits of the files that an Access is read from, in bytes.
const (
	maxCAFile    = 1 << 20
	maxTokenFile = 64 << 10
)

// ReadAccess reads index.ca_file and the files of index.peer_tokens, and returns the Access of each
// peer by host and port. Its errors wrap ErrAccess and name the key and the file, but never include
// the contents.
func ReadAccess(c index.Config) (map[string]Access, error) {
	var every Access
	if c.CAFile != "" {
		raw, err := readFile(c.CAFile, maxCAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: index.ca_file: %w", ErrAccess, err)
		}
		every.ca = raw
		if every.roots, err = sig.Roots(raw); err != nil {
			return nil, fmt.Errorf("%w: index.ca_file: %s %w", ErrAccess, c.CAFile, err)
		}
	}
	out := make(map[string]Access, len(c.Peers))
	for _, entry := range c.Peers {
		at, _, err := index.SplitPeer(entry)
		if err != nil {
			return nil, err
		}
		one := every
		if file := c.PeerTokens[at.Host]; file != "" {
			if one.token, err = readToken(file); err != nil {
				return nil, fmt.Errorf("%w: index.peer_tokens: %q: %w", ErrAccess, at.Host, err)
			}
		}
		out[at.Host] = one
	}
	return out, nil
}

// readToken reads a file that holds one token on one line.
func readToken(file string) (string, error) {
	raw, err := readFile(file, maxTokenFile)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(raw))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s must hold one token on one line", file)
	}
	return token, nil
}

// readFile reads a file of at most limit bytes.
func readFile(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", file, limit)
	}
	return raw, err
}
