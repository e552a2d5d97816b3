package member

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/peer"
	"ronbox/store"
)

func TestKeyDigests(t *testing.T) {
	secrets := Bundle{NodeKey: []byte("5ec7e7\n"), LogKey: []byte("PRIVATE+KEY+x\n")}
	leader := DigestKeys("A", secrets)
	for _, row := range []struct {
		name string
		b    Bundle
		want string
	}{
		{"the same", Bundle{NodeKey: []byte("5ec7e7"), LogKey: []byte("PRIVATE+KEY+x\r\n")}, ""},
		{"another node key", Bundle{NodeKey: []byte("5ec7e8\n"), LogKey: secrets.LogKey}, "node.key"},
		{"no log key", Bundle{NodeKey: secrets.NodeKey}, "log.key"},
		{"swapped", Bundle{NodeKey: secrets.LogKey, LogKey: secrets.NodeKey}, "log.key, node.key"},
	} {
		if got := DigestKeys("A", row.b).Differ(leader); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if got := KeyDigests(nil).Differ(leader) + leader.Differ(nil); got != "" {
		t.Errorf("a node of an older release differs in %s", got)
	}
	if got := leader.Differ(DigestKeys("A", Bundle{NodeKey: secrets.NodeKey})); got != "" {
		t.Errorf("the leader lacks a key: %s", got)
	}
	if got := DigestKeys("B", secrets).Differ(leader); got != "log.key, node.key" {
		t.Errorf("the digests of another cluster differ in %q", got)
	}
	if d := leader["node.key"]; len(d) != 2*keyDigestLen || strings.Contains(d, "5ec7e7") {
		t.Errorf("digest %q", d)
	}
}

// The leader compares the secrets of each member with its own at each hello.
func TestHelloComparesKeys(t *testing.T) {
	l := lead(t)
	d := empty(t)
	id, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{})))
	if err != nil {
		t.Fatal(err)
	}
	client := id.Client()
	defer client.CloseIdleConnections()
	good := DigestKeys(id.ClusterID(), Bundle{NodeKey: []byte("good")})
	bad := DigestKeys(id.ClusterID(), Bundle{NodeKey: []byte("bad")})
	for _, row := range []struct {
		name         string
		ours, theirs KeyDigests
		want         string
	}{
		{"another key", good, bad, "node.key"},
		{"the same keys", good, good, ""},
		{"no key", good, KeyDigests{"node.key": ""}, "node.key"},
		{"an older release", good, nil, ""},
		{"a leader that does not serve yet", nil, bad, ""},
	} {
		l.keys = row.ours
		answer, err := SayHello(t.Context(), client, []string{l.addr}, time.Now, Hello{
			Versions: peer.ThisProgram(store.Schema), Advertise: "127.0.0.1:7947", Keys: row.theirs,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.server.Differs(id.ServerID()); got != row.want {
			t.Errorf("%s: the leader finds %q, want %q", row.name, got, row.want)
		}
		if got := row.theirs.Differ(answer.Keys); got != row.want {
			t.Errorf("%s: the member finds %q, want %q", row.name, got, row.want)
		}
	}
}
