package member

import (
	"bytes"
	"encoding/hex"
	"strings"
	"sync"

	"ronbox/appliance/b3"
)

// KeyDigests are digests of the secrets that all members share, by file name. The digest of a
// missing secret is "". A digest does not reveal its secret: the secrets are random keys.
type KeyDigests map[string]string

const (
	nodeKeyName = "node.key"
	logKeyName  = "log.key"

	keyDigestLen = 16 // bytes
)

var keyDigest = b3.Derive("ronbox cluster shared secret digest v1")

// DigestKeys returns the digests of the node key and the log key in b, for members of a cluster.
// White space around a secret does not count.
func DigestKeys(cluster string, b Bundle) KeyDigests {
	digest := func(name string, secret []byte) string {
		if secret = bytes.TrimSpace(secret); len(secret) == 0 {
			return ""
		}
		sum := keyDigest.Sum([]byte(cluster), []byte("\n"), []byte(name), []byte("\n"), secret)
		return hex.EncodeToString(sum[:keyDigestLen])
	}
	return KeyDigests{
		nodeKeyName: digest(nodeKeyName, b.NodeKey),
		logKeyName:  digest(logKeyName, b.LogKey),
	}
}

// Differ returns the file names of the secrets of the leader that differ or are missing in k,
// separated by commas. It returns "" if k or leader is nil: a node of an older release sends no
// digests.
func (k KeyDigests) Differ(leader KeyDigests) string {
	if k == nil {
		return ""
	}
	var names []string
	for _, name := range []string{logKeyName, nodeKeyName} {
		if want := leader[name]; want != "" && k[name] != want {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// keyWatch records the members whose secrets differ from those of this node, which leads.
type keyWatch struct {
	mu     sync.Mutex        // a leaf
	differ map[string]string // names of the secrets by member; guarded by mu
}

// compareKeys compares the secrets of a member with those of this node, and logs each change of the
// result.
func (s *Server) compareKeys(server string, theirs, ours KeyDigests) {
	differ := theirs.Differ(ours)
	s.keys.mu.Lock()
	before := s.keys.differ[server]
	switch {
	case differ == "":
		delete(s.keys.differ, server)
	case s.keys.differ == nil:
		s.keys.differ = map[string]string{server: differ}
	default:
		s.keys.differ[server] = differ
	}
	s.keys.mu.Unlock()
	switch {
	case before == differ:
	case differ == "":
		s.d.Log.Info("keys_agree", "peer", server)
	default:
		s.d.Log.Warn("keys_differ", "peer", server, "files", differ, "next", "copy them from this node to the peer")
	}
}

// Differs returns the file names of the secrets in which a member differs from this node, as of its
// last hello, or "".
func (s *Server) Differs(server string) string {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	return s.keys.differ[server]
}
