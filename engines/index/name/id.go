package name

import (
	"crypto/ed25519"
	"errors"
	"strings"

	"github.com/ipfs/go-cid"
	"github.com/mr-tron/base58"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multihash"

	"ronbox/appliance/b3"
)

// maxIDText bounds the text of a content id or a peer id in bytes. In base 2 a CID has about 300.
const maxIDText = 512

// libp2pKey is the codec of a peer id that is written as a CID.
const libp2pKey = 0x72

// ParseCID parses a content id: "b3:<hex>", or a CID of any version, codec and multibase with a
// BLAKE3 hash of 32 bytes. It returns ErrForeignCID for a CID of another hash, and a *CIDError for
// any other text.
func ParseCID(s string) (b3.Digest, error) {
	if len(s) >= len(b3Prefix) && s[:len(b3Prefix)] == b3Prefix {
		d, err := b3.Parse(s)
		if err != nil {
			return b3.Digest{}, &CIDError{`must be "b3:" and 64 lower-case hex digits`}
		}
		return d, nil
	}
	if len(s) > maxIDText {
		return b3.Digest{}, &CIDError{"is longer than 512 bytes"}
	}
	c, err := cid.Decode(s)
	if err != nil {
		return b3.Digest{}, &CIDError{`must be "b3:" and 64 hex digits, or a CID`}
	}
	mh, err := multihash.Decode(c.Hash())
	if err != nil || mh.Code != multihash.BLAKE3 || len(mh.Digest) != b3.Size {
		return b3.Digest{}, ErrForeignCID
	}
	return b3.Digest(mh.Digest), nil
}

// ProvidersKey returns the text that stands for the providers of d in the cache of answers, where
// the text of a Key stands for a name.
func ProvidersKey(d b3.Digest) string { return "p" + string(d[:]) }

// CIDText returns the CID of d: version 1, codec raw, base32, 59 characters that begin with
// "bafkr4i".
func CIDText(d b3.Digest) string {
	mh, err := multihash.Encode(d[:], multihash.BLAKE3)
	if err != nil {
		panic("index: " + err.Error()) // cannot happen: 32 bytes under a known code
	}
	return cid.NewCidV1(cid.Raw, mh).String()
}

// PeerID is the id of a libp2p peer in base58. The id of an Ed25519 key contains the key and begins
// with "12D3Koo".
type PeerID string

// ed25519Head is the prefix of the multihash of an Ed25519 key: identity, 36 bytes, and the
// protobuf header of the key.
var ed25519Head = [...]byte{0x00, 0x24, 0x08, 0x01, 0x12, 0x20}

// PeerIDOf returns the id of a public key.
func PeerIDOf(key ed25519.PublicKey) PeerID {
	return PeerID(base58.Encode(append(ed25519Head[:], key...)))
}

var errPeerID = errors.New("must be a libp2p peer id, as 12D3KooW…")

// ParsePeerID parses a peer id: base58, or a CID of the codec libp2p-key.
func ParsePeerID(s string) (PeerID, error) {
	if s == "" || len(s) > maxIDText {
		return "", errPeerID
	}
	if s[0] == '1' || s[0] == 'Q' {
		raw, err := base58.Decode(s)
		if err != nil || !peerHash(raw) {
			return "", errPeerID
		}
		return PeerID(base58.Encode(raw)), nil
	}
	c, err := cid.Decode(s)
	if err != nil || c.Type() != libp2pKey || !peerHash(c.Hash()) {
		return "", errPeerID
	}
	return PeerID(base58.Encode(c.Hash())), nil
}

// peerHash reports whether raw is the multihash of a key: the key itself, or the SHA-256 of a
// longer key.
func peerHash(raw []byte) bool {
	mh, err := multihash.Decode(raw)
	return err == nil && (mh.Code == multihash.IDENTITY || mh.Code == multihash.SHA2_256) && len(mh.Digest) >= 32 &&
		len(mh.Digest) <= 64
}

// Key returns the public key of p. It returns false if the id is a hash of the key.
func (p PeerID) Key() (ed25519.PublicKey, bool) {
	raw, err := base58.Decode(string(p))
	if err != nil || len(raw) != len(ed25519Head)+ed25519.PublicKeySize || [6]byte(raw) != ed25519Head {
		return nil, false
	}
	return raw[len(ed25519Head):], true
}

// Bounds of the addresses of one provider.
const (
	MaxAddrs = 16
	MaxAddr  = 256 // bytes of one
)

// checkAddrs returns an error unless addrs are 1 to 16 multiaddrs in canonical spelling.
func checkAddrs(addrs []string) error {
	if len(addrs) < 1 || len(addrs) > MaxAddrs {
		return &RecordError{"addrs", "must be 1 to 16 multiaddrs"}
	}
	for _, a := range addrs {
		if len(a) > MaxAddr {
			return &RecordError{"addrs", "each must be at most 256 bytes"}
		}
		m, err := multiaddr.NewMultiaddr(a)
		if err != nil {
			return &RecordError{"addrs", "each must be a multiaddr, as /ip4/192.0.2.1/tcp/8443/https"}
		}
		if m.String() != a {
			return &RecordError{"addrs", "each must be spelt as multiaddr prints it, this one as " + m.String()}
		}
	}
	return nil
}

// maxRegion bounds the bytes of a region.
const maxRegion = 32

// CheckRegion returns a *RecordError unless s is "" or 1 to 32 of a-z, 0-9 and hyphens.
func CheckRegion(s string) error {
	if len(s) > maxRegion || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return &RecordError{"region", "must be at most 32 of a-z, 0-9 and hyphens"}
	}
	return nil
}

// unsigned returns the id and the readable addresses of an unsigned provider. It returns false if
// there are none.
func Unsigned(p *Provider) (Provider, bool) {
	id, err := ParsePeerID(string(p.Peer))
	var addrs []string
	for _, a := range p.Addrs[:min(len(p.Addrs), MaxAddrs)] {
		if len(a) > MaxAddr {
			continue
		}
		m, err := multiaddr.NewMultiaddr(a)
		if err != nil {
			continue
		}
		if a = m.String(); len(a) <= MaxAddr {
			addrs = append(addrs, a)
		}
	}
	if err != nil || len(addrs) == 0 {
		return Provider{}, false
	}
	out := Provider{Peer: id, Addrs: addrs}
	if CheckRegion(p.Region) == nil {
		out.Region = p.Region
	}
	return out, true
}

// Protocols returns the names of the protocols of a multiaddr, or nil if it is invalid.
func Protocols(addr string) []string {
	m, err := multiaddr.NewMultiaddr(addr)
	if err != nil {
		return nil
	}
	out := make([]string, len(m))
	for i := range m {
		out[i] = m[i].Protocol().Name
	}
	return out
}

// PlainAddrs returns addresses in the spelling of multiaddr. Invalid addresses are left unchanged.
func PlainAddrs(addrs []string) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		if m, err := multiaddr.NewMultiaddr(a); err == nil && len(a) <= MaxAddr {
			a = m.String()
		}
		out = append(out, a)
	}
	return out
}
