package cluster

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A leave that was killed while it removed the identity is completed by the same verb.
func TestLeaveKilledAtItsEnd(t *testing.T) {
	path := t.TempDir()
	dir := member.At(path)
	id, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(dir.Database(), id)
	}
	if err == nil {
		_, err = dir.Init("127.0.0.1:7946")
	}
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(path, "cluster", peer.CACertFile)
	if err := errors.Join(dir.BeginLeave(), os.Remove(gone)); err != nil {
		t.Fatal(err)
	}
	a := app{&cli.App{Stdout: &bytes.Buffer{}}}
	if err := a.leaveStopped(dir, true); err != nil {
		t.Error(err)
	}
	if err := a.leaveStopped(dir, true); !errors.Is(err, member.ErrAlone) {
		t.Errorf("leave of a node alone: err = %v, want ErrAlone", err)
	}
}
