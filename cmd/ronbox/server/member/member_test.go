package member

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

// A node that listens at all addresses names the host at which other members reach it.
func TestPublicURL(t *testing.T) {
	for bound, want := range map[string]string{
		"http://10.0.0.1:8080":          "http://10.0.0.1:8080",
		"https://0.0.0.0:8080":          "https://node1.example.org:8080",
		"http://[::]:8080":              "http://node1.example.org:8080",
		"https://node1.example.com:443": "https://node1.example.com:443",
	} {
		if got := publicURL(bound, "node1.example.org:7946"); got != want {
			t.Errorf("%s: %s, want %s", bound, got, want)
		}
	}
}

// A node without its node key still has its log key.
func TestBundleWithoutNodeKey(t *testing.T) {
	cfg := config.Default()
	cfg.Node.DataDir = t.TempDir()
	m := &Member{d: Deps{Config: func() *config.Config { return cfg }}}
	logKey := cfg.LogKeyPath()
	must(t, os.MkdirAll(filepath.Dir(logKey), 0o700))
	must(t, os.WriteFile(logKey, []byte("log key\n"), 0o600))
	if b, err := m.bundle(); !errors.Is(err, os.ErrNotExist) || string(b.LogKey) != "log key\n" {
		t.Errorf("log key %q, %v", b.LogKey, err)
	}
}

// A token is refused while a node that joins would refuse the member.
func TestNoTokenFromAMemberOutOfDate(t *testing.T) {
	id, err := peer.Found("127.0.0.1:7946", store.Schema, time.Now().Add(48*time.Hour))
	must(t, err)
	m := &Member{id: id, d: Deps{Clock: clock.New(clock.Options{}), Median: new(atomic.Pointer[time.Time])}}
	why := m.mayAdmit()
	if why == nil || !strings.Contains(why.Error(), id.ServerID()) || !strings.Contains(why.Error(), "cluster rotate") {
		t.Errorf("it may admit: %v", why)
	}
	fresh, err := id.Renewed(time.Now())
	must(t, err)
	id.Adopt(fresh)
	must(t, m.mayAdmit())
}

// The secrets of a leader are its own, whatever an earlier leader has said.
func TestSecretsOfTheLeader(t *testing.T) {
	cfg := config.Default()
	cfg.Node.DataDir = t.TempDir()
	id, err := peer.Found("127.0.0.1:7946", store.Schema, time.Now())
	must(t, err)
	leads := false
	m := &Member{
		id: id, d: Deps{Config: func() *config.Config { return cfg }}, leads: func() bool { return leads },
	}
	m.keysOf.Store(&member.KeyDigests{config.SecretName: "of an earlier leader"})
	if differ := m.differing(); differ != config.SecretName {
		t.Errorf("differing are %q", differ)
	}
	leads = true
	if differ := m.differing(); differ != "" {
		t.Errorf("%s of the leader are not its own", differ)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
