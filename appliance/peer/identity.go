package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/host"
)

// Files of an identity, in the directory <data>/cluster.
const (
	CACertFile = "ca.crt"    // certificate of the authority
	CAKeyFile  = "ca.key"    // key of the authority; absent until the bundle is there
	CertFile   = "node.crt"  // certificate of the node
	KeyFile    = "node.key"  // key of that certificate
	NodeFile   = "node.json" // NodeInfo
)

// maxFile bounds a file of an identity, bytes.
const maxFile = 16 << 10

// ErrExposed is returned for a private key that other users may read.
var ErrExposed = errors.New("peer: others may read a private key")

// NodeInfo is the content of node.json.
type NodeInfo struct {
	Cluster   string `json:"cluster"`   // ULID
	Server    string `json:"server"`    // ULID; id of the node in raft
	Advertise string `json:"advertise"` // host:port at which other nodes reach its peer port
	// Bind is cluster.bind of the last boot. If it is Advertise, that follows it.
	Bind string `json:"bind,omitempty"`
}

// Validate returns an error if an id or the address is malformed.
func (n NodeInfo) Validate() error {
	if !ValidID(n.Cluster) || !ValidID(n.Server) {
		return fmt.Errorf("ids %.32q and %.32q must be ULIDs", n.Cluster, n.Server)
	}
	return CheckAddress(n.Advertise)
}

// CheckAddress returns an error unless addr is a host and a port that other nodes can dial.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	ip := net.ParseIP(host)
	if err != nil || bad != nil || n == 0 || host == "" || len(addr) > 300 || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%.300q is not an address that other nodes can reach, such as 10.0.0.1:7946", addr)
	}
	return nil
}

// Identity is a node of a cluster: its ids, its certificate and the certificate of the authority.
// Only Adopt changes it. It is safe for concurrent use.
type Identity struct {
	info NodeInfo
	ca   *x509.Certificate
	// certificates of the node and of the authority, key of the node; shared by copies
	chain     *atomic.Pointer[tls.Certificate]
	authority *Authority // nil without ca.key
	now       func() time.Time
	agreed    func() (now time.Time, sure bool) // nil: now
	speaks    Versions
}

// NewKey returns a new key for a node certificate.
func NewKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the node: %w", err)
	}
	return key, nil
}

// EnsureKey returns the key of the node in dir, which it makes if it does not exist.
func EnsureKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, KeyFile)
	text, err := readPrivate(path)
	if err == nil {
		return parseKey(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	if text, err = encodeKey(key); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	return key, WriteFile(path, text)
}

// NewIdentity returns the identity of a node whose files have the schema, with a certificate of the
// node and one of the authority, both in PEM. authority may be nil. It returns ErrStranger if the
// authority did not sign the certificate for this node, and another error if the parts do not
// belong together.
func NewIdentity(
	info NodeInfo,
	schema int,
	key ed25519.PrivateKey,
	cert, caCert []byte,
	authority *Authority,
) (*Identity, error) {
	if err := info.Validate(); err != nil {
		return nil, err
	}
	i := &Identity{
		info: info, chain: new(atomic.Pointer[tls.Certificate]), authority: authority,
		now: time.Now, speaks: ThisProgram(schema),
	}
	var err error
	if i.ca, err = parseCert(caCert); err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	node, err := parseCert(cert)
	if err != nil {
		return nil, fmt.Errorf("certificate of the node: %w", err)
	}
	server, err := serverOf(node, i.ca) // an expired one is reported when it is used
	if err != nil {
		return nil, err
	}
	cluster := node.URIs[0].Host
	if server != info.Server || cluster != info.Cluster {
		return nil, fmt.Errorf("the certificate is of node %s of cluster %s, not of node %s of cluster %s",
			server, cluster, info.Server, info.Cluster)
	}
	if pub := node.PublicKey.(ed25519.PublicKey); !pub.Equal(key.Public()) {
		return nil, errors.New("the key of the node does not belong to its certificate")
	}
	if authority != nil && !authority.cert.Equal(i.ca) {
		return nil, errors.New("the key of the authority belongs to another certificate")
	}
	i.chain.Store(&tls.Certificate{Certificate: [][]byte{node.Raw, i.ca.Raw}, PrivateKey: key, Leaf: node})
	return i, nil
}

func parseCert(text []byte) (*x509.Certificate, error) {
	der, err := pemBlock(text, certBlock)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Found returns a new identity in a new cluster, with its authority.
func Found(advertise string, schema int, now time.Time) (*Identity, error) {
	authority, err := NewAuthority(now)
	if err != nil {
		return nil, err
	}
	server, err := NewID(now)
	if err != nil {
		return nil, err
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := authority.Issue(server, key.Public().(ed25519.PublicKey), now)
	if err != nil {
		return nil, err
	}
	info := NodeInfo{Cluster: authority.Cluster(), Server: server, Advertise: advertise}
	return NewIdentity(info, schema, key, cert, authority.CertPEM(), authority)
}

// Load reads the identity in dir, the directory <data>/cluster. It returns fs.ErrNotExist if dir
// has no node.json, ErrExposed if other users may read a key, and another error if the files do not
// belong together. An expired certificate is loaded; see NotAfter.
func Load(dir string, schema int) (*Identity, error) {
	i, err := load(dir, schema)
	if err != nil {
		return nil, fmt.Errorf("identity in %s: %w", dir, err)
	}
	return i, nil
}

func load(dir string, schema int) (*Identity, error) {
	info, err := readInfo(dir)
	if err != nil {
		return nil, err
	}
	text := map[string][]byte{}
	for _, name := range []string{CACertFile, CertFile} {
		if text[name], err = readBounded(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{KeyFile, CAKeyFile} {
		text[name], err = readPrivate(filepath.Join(dir, name))
		if err != nil && (name != CAKeyFile || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	key, err := parseKey(text[KeyFile])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyFile, err)
	}
	var authority *Authority
	if text[CAKeyFile] != nil {
		if authority, err = ParseAuthority(text[CACertFile], text[CAKeyFile]); err != nil {
			return nil, err
		}
		if text[CertFile], err = authority.mend(text[CertFile], info.Server, key); err != nil {
			return nil, err
		}
	}
	return NewIdentity(info, schema, key, text[CertFile], text[CACertFile], authority)
}

func readInfo(dir string) (info NodeInfo, err error) {
	text, err := readBounded(filepath.Join(dir, NodeFile))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return info, fmt.Errorf("%s: %w", NodeFile, err)
	}
	return info, nil
}

// readPrivate reads a key and returns ErrExposed if other users may read it.
func readPrivate(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o", ErrExposed, path, mode)
	}
	return readBounded(path)
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return text, err
}

// Save writes the identity into dir, which it creates if needed. A Save that was interrupted may be
// repeated. It does not change a directory that holds the same identity.
func (i *Identity) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	chain := i.chain.Load()
	key, err := encodeKey(chain.PrivateKey.(ed25519.PrivateKey))
	if err != nil {
		return err
	}
	info, err := json.Marshal(i.info)
	if err != nil {
		return err
	}
	type file struct {
		name string
		text []byte
	}
	files := []file{
		{CACertFile, encodePEM(certBlock, i.ca.Raw)},
		{KeyFile, key},
		{CertFile, encodePEM(certBlock, chain.Leaf.Raw)},
	}
	if i.authority != nil {
		text, err := i.authority.KeyPEM()
		if err != nil {
			return err
		}
		files = append(files, file{CAKeyFile, text})
	}
	for _, f := range append(files, file{NodeFile, append(info, '\n')}) {
		if err := WriteFile(filepath.Join(dir, f.name), f.text); err != nil {
			return err
		}
	}
	return host.SyncDir(filepath.Dir(dir))
}

// WriteFile creates or replaces a file of mode 0600. The file is complete or unchanged, and
// survives a power cut once WriteFile has returned nil.
func WriteFile(path string, text []byte) error {
	return host.ReplaceFile(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WithAuthority returns a copy of i that can issue certificates.
func (i *Identity) WithAuthority(a *Authority) (*Identity, error) {
	if !a.cert.Equal(i.ca) {
		return nil, errors.New("the key of the authority belongs to another cluster")
	}
	out := *i
	out.authority = a
	return &out, nil
}

// WithAdvertise returns a copy of i with another address of its peer port.
func (i *Identity) WithAdvertise(addr string) (*Identity, error) {
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	out := *i
	out.info.Advertise = addr
	return &out, nil
}

// Follow returns i with the address that its configuration gives it: advertise or, if that is ""
// and the address was cluster.bind, the new bind. It returns i itself if nothing changes.
func (i *Identity) Follow(advertise, bind string) *Identity {
	info := i.info
	switch {
	case advertise != "":
		info.Advertise, info.Bind = advertise, bind
	case info.Advertise != info.Bind:
		info.Bind = bind
	case CheckAddress(bind) == nil:
		info.Advertise, info.Bind = bind, bind
	}
	if info == i.info {
		return i
	}
	out := *i
	out.info = info
	return &out
}

// ClusterID returns the id of the cluster.
func (i *Identity) ClusterID() string { return i.info.Cluster }

// ServerID returns the id of the node in the cluster.
func (i *Identity) ServerID() string { return i.info.Server }

// Advertise returns the address of the peer port of the node, as other nodes dial it.
func (i *Identity) Advertise() string { return i.info.Advertise }

// Pin returns the pin of the authority.
func (i *Identity) Pin() Pin { return pinOf(i.ca) }

// CertPEM returns the certificate of the node in PEM.
func (i *Identity) CertPEM() []byte { return encodePEM(certBlock, i.leaf().Raw) }

// CACertPEM returns the certificate of the authority in PEM.
func (i *Identity) CACertPEM() []byte { return encodePEM(certBlock, i.ca.Raw) }

// Authority returns the authority, or nil if the node does not have its key.
func (i *Identity) Authority() *Authority { return i.authority }
