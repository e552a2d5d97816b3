package member

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// Files of the data directory that the bundle fills.
const (
	nodeKeyFile = "node.key"         // root of all tokens
	logKeyFile  = "registry/log.key" // signs checkpoints
	configFile  = "ronbox.toml"      // may be there before a join
)

// JoinOptions are the options of Join and of RejoinWipe.
type JoinOptions struct {
	URL       string // https://HOST:PORT of the peer port of a member; of RejoinWipe it may be ""
	Token     string // of Mint; of RejoinWipe "" with URL ""
	Advertise string // address of the peer port of this node; of RejoinWipe "": as before
	LogKey    string // path for the log key of the registry; "": registry/log.key in the data directory
	// addresses of members for RejoinWipe, besides those that the node knows
	Peers []string
	Now   func() time.Time // nil: time.Now
}

// Joining is the content of the mark of a join. The mark remains until the node is admitted.
type Joining struct {
	Members []string `json:"members"` // addresses of peer ports
	Standby bool     `json:"standby"`
	Ready   bool     `json:"ready"` // identity and secrets are complete
	Fetched bool     `json:"-"`     // the file is there
}

// Join prepares an empty data directory, in which a configuration file may be, for a node of the
// cluster at o.URL: identity and secrets, but no file. It needs the network, and blocks until ctx
// ends. It may be repeated until it has succeeded, also with the same token. It returns
// ErrNotEmpty, ErrMember for a complete join of another cluster, ErrToken, [peer.ErrStranger] if
// the cluster is not that of the token, and a [peer.RefusedError] if versions or clocks differ; the
// token stays good then.
func (d *Dir) Join(ctx context.Context, o JoinOptions) (*peer.Identity, error) {
	id, err := d.join(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	return id, nil
}

func (d *Dir) join(ctx context.Context, o JoinOptions) (*peer.Identity, error) {
	_, badURL := peerAddress(o.URL)
	token, badToken := ParseToken(o.Token)
	err := errors.Join(peer.CheckAddress(o.Advertise), badURL, badToken, d.mayJoin())
	if err != nil {
		return nil, err // the directory stays as it is
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := errors.Join(d.mayJoin(), d.idle(joinMark)); err != nil { // another verb may have come first
		return nil, err
	}
	begun, err := readMark[Joining](d, joinMark)
	if err != nil {
		return nil, err
	}
	if begun != nil && begun.Ready {
		return d.joined(token, o.Advertise)
	}
	if begun == nil {
		if err := d.begin(); err != nil {
			return nil, err
		}
	}
	a := applicant{d: d, o: o, dir: d.file(clusterDir)}
	id, b, err := a.apply(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.do("secrets", func() error { return d.writeSecrets(b, o.LogKey) }); err != nil {
		return nil, err
	}
	if err := d.do("authority", func() error { return id.Save(d.file(clusterDir)) }); err != nil {
		return nil, err
	}
	return id, d.do("ready", func() error { return d.ready(b) })
}

// joined returns the identity of a complete join, with another address unless the node was served.
// It returns ErrMember if the token is of another cluster.
func (d *Dir) joined(token Token, advertise string) (*peer.Identity, error) {
	id, err := d.Identity()
	if err != nil {
		return nil, err
	}
	if id.Pin() != token.Pin {
		return nil, fmt.Errorf("%w, %s; the token is of another one: name another directory", ErrMember, id.ClusterID())
	}
	if served, err := d.hasFile(); served || err != nil || id.Advertise() == advertise {
		return id, err
	}
	if id, err = id.WithAdvertise(advertise); err != nil {
		return nil, err
	}
	return id, d.do("address", func() error { return id.Save(d.file(clusterDir)) })
}

// ready writes the mark of a complete join.
func (d *Dir) ready(b Bundle) error {
	if err := d.SavePeers(b.Members); err != nil {
		return err
	}
	return d.writeMark(joinMark, Joining{Members: d.savedPeers(), Standby: b.Standby, Ready: true})
}

// mayJoin returns ErrNotEmpty unless the directory is absent, empty, or that of a join. It may hold
// a configuration file. It returns an error that names the process if a node runs there.
func (d *Dir) mayJoin() error {
	if err := d.unlocked(); err != nil {
		return err
	}
	names, err := d.Contents()
	if errors.Is(err, fs.ErrNotExist) || d.has(joinMark) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.holdsOnly(names, configFile)
}

// begin writes the mark of a join, and looks again for other files. `ronbox init` has a mark of its
// own and looks after it for this one, so at most one of the two goes on.
func (d *Dir) begin() error {
	if err := d.do("mark", func() error { return d.writeMark(joinMark, Joining{}) }); err != nil {
		return err
	}
	names, err := d.Contents()
	if err == nil {
		err = d.holdsOnly(names, configFile, clusterDir)
	}
	if err != nil {
		return errors.Join(err, d.removeMark(joinMark))
	}
	return nil
}

// holdsOnly returns ErrNotEmpty if the names in the directory are not all among the expected ones.
func (d *Dir) holdsOnly(names []string, expected ...string) error {
	for _, name := range names {
		if !slices.Contains(expected, name) {
			return fmt.Errorf("%w: %s has %s", ErrNotEmpty, d.path, name)
		}
	}
	return nil
}

// writeSecrets writes the secrets of a bundle.
func (d *Dir) writeSecrets(b Bundle, logKey string) error {
	if logKey == "" {
		logKey = d.file(logKeyFile)
	}
	for _, f := range []struct {
		path string
		text []byte
	}{{d.file(nodeKeyFile), b.NodeKey}, {logKey, b.LogKey}} {
		if len(f.text) == 0 {
			continue
		}
		if has, err := os.ReadFile(f.path); err == nil && bytes.Equal(has, f.text) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
			return err
		}
		if err := peer.WriteFile(f.path, f.text); err != nil {
			return err
		}
	}
	return nil
}

// Admitted removes the mark of a join, once a hello was answered and the node is a member.
func (d *Dir) Admitted() error { return d.removeMark(joinMark) }

// applicant obtains an identity and the bundle from a cluster. The identity and its key are kept in
// dir, so that a repeated application continues.
type applicant struct {
	d     *Dir
	o     JoinOptions
	dir   string
	known []string // addresses of members
}

// apply returns the identity, whose authority is not in dir yet, and the bundle.
func (a applicant) apply(ctx context.Context) (*peer.Identity, Bundle, error) {
	var b Bundle
	id, err := peer.Load(a.dir, store.Schema)
	if err == nil {
		b, err = a.askBundle(ctx, id)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrToken) { // none yet, or forgotten by the cluster
		if id, err = a.obtain(ctx); err == nil {
			b, err = a.askBundle(ctx, id)
		}
	}
	if err != nil {
		return nil, b, err
	}
	authority, err := peer.ParseAuthority(id.CACertPEM(), b.CAKey)
	if err != nil {
		return nil, b, fmt.Errorf("bundle: %w", err)
	}
	id, err = id.WithAuthority(authority)
	return id, b, err
}

// obtain asks the cluster for a certificate and saves the identity.
func (a applicant) obtain(ctx context.Context) (id *peer.Identity, err error) {
	var key ed25519.PrivateKey
	err = a.d.do("key", func() error {
		key, err = peer.EnsureKey(a.dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	answer, err := a.ask(ctx, key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	info := peer.NodeInfo{Cluster: answer.Cluster, Server: answer.Server, Advertise: a.o.Advertise}
	if id, err = peer.NewIdentity(info, store.Schema, key, []byte(answer.Cert), []byte(answer.CA), nil); err != nil {
		return nil, err
	}
	// Save writes this file last: without the old one, a kill in Save leaves no mixed identity
	err = a.d.do("forget", func() error { return removeAll(filepath.Join(a.dir, peer.NodeFile)) })
	if err != nil {
		return nil, err
	}
	return id, a.d.do("identity", func() error { return id.Save(a.dir) })
}

// ask sends the request for a certificate, with the token or, without one, as a member.
func (a applicant) ask(ctx context.Context, key ed25519.PublicKey) (answer joinAnswer, err error) {
	q := joinRequest{Versions: peer.ThisProgram(store.Schema), Key: key, Advertise: a.o.Advertise}
	if a.o.URL == "" && a.o.Token == "" {
		return a.askAsMember(ctx, q)
	}
	t, err := ParseToken(a.o.Token)
	if err != nil {
		return answer, err
	}
	addr, err := peerAddress(a.o.URL)
	if err != nil {
		return answer, err
	}
	q.Token = t.Secret[:]
	client := peer.JoinClient(t.Pin, a.now)
	defer client.CloseIdleConnections()
	return a.askOne(ctx, client, PathJoin, addr, q, t.Pin)
}

// askAsMember sends the request with the certificate that the node has so far.
func (a applicant) askAsMember(ctx context.Context, q joinRequest) (answer joinAnswer, err error) {
	old, err := a.d.valid(a.now())
	if err != nil {
		return answer, fmt.Errorf("%w; give a URL and a token", err)
	}
	client := old.Client()
	defer client.CloseIdleConnections()
	return askAny(ctx, a.known, func(addr string) (joinAnswer, error) {
		return a.askOne(ctx, client, PathRejoin, addr, q, old.Pin())
	})
}

// askOne asks one member for its versions and its clock, and then for a certificate.
func (a applicant) askOne(
	ctx context.Context,
	client *http.Client,
	path, addr string,
	q joinRequest,
	pin peer.Pin,
) (answer joinAnswer, err error) {
	from := a.now()
	question, err := callOne[joinAnswer](ctx, client, addr, path, joinRequest{Versions: q.Versions})
	if err == nil {
		err = q.Versions.Judge(question.Versions)
	}
	if err == nil {
		err = peer.SkewOf(question.Clock, from, a.now()).Check()
	}
	if err != nil {
		return answer, err
	}
	if answer, err = call[joinAnswer](ctx, client, addr, path, q); err != nil {
		return answer, err
	}
	return answer, checkPin([]byte(answer.CA), pin)
}

func (a applicant) now() time.Time {
	if a.o.Now != nil {
		return a.o.Now()
	}
	return time.Now()
}

// checkPin returns an error unless the authority has the pin.
func checkPin(ca []byte, pin peer.Pin) error {
	got, err := peer.PinOf(ca)
	if err == nil && got != pin {
		err = fmt.Errorf("%w: its authority is not that of the token", peer.ErrStranger)
	}
	return err
}

// peerAddress returns the address in the URL of a peer port.
func peerAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" ||
		peer.CheckAddress(u.Host) != nil {
		return "", fmt.Errorf("%.300q is not the URL of a peer port, such as https://10.0.0.1:7946", text)
	}
	return u.Host, nil
}

// askBundle asks the members that the node knows for the bundle.
func (a applicant) askBundle(ctx context.Context, id *peer.Identity) (Bundle, error) {
	client := id.Client()
	defer client.CloseIdleConnections()
	addrs := a.known
	if addr, err := peerAddress(a.o.URL); err == nil {
		addrs = append([]string{addr}, addrs...)
	}
	return askAny(ctx, addrs, func(addr string) (Bundle, error) {
		b, err := call[Bundle](ctx, client, addr, PathBundle, nil)
		if err == nil && (len(b.NodeKey) == 0 || len(b.CAKey) == 0) {
			err = errors.New("bundle: a key is missing")
		}
		return b, err
	})
}
