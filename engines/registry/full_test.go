package registry_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
	"ronbox/store"
)

// newSmallRig is a rig on a file of at most 32 MiB, in memory.
func newSmallRig(t *testing.T) *registrytest.Rig {
	t.Helper()
	memory := store.DefaultAmnesiaConfig()
	memory.MaxBytes = 32 << 20
	r := &registrytest.Rig{
		T: t, Path: filepath.Join(t.TempDir(), "none"), Config: registry.DefaultConfig(), Memory: &memory,
	}
	r.Config.Origin, r.Config.Timeouts = registrytest.Origin, registrytest.Patient
	r.Config.Proposals.MaxPending, r.Config.Proposals.MaxPerCap = 512, 512
	r.Open()
	t.Cleanup(r.Stop)
	return r.Start()
}

// noise is text that does not compress.
type noise struct{ *rand.ChaCha8 }

func (n noise) text() string {
	b := make([]byte, 22<<10)
	_, _ = n.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// fillUp proposes ever smaller versions until none fits, and returns the accepted ones.
func fillUp(r *registrytest.Rig) (taken []document.Proposed) {
	r.T.Helper()
	source := noise{rand.NewChaCha8([32]byte{})}
	for n := 4; n > 0; {
		p, err := r.Engine.Propose(r.Ctx(), alice, source.draft(n), "", "")
		switch {
		case err == nil:
			taken = append(taken, p)
		case errors.Is(err, store.ErrFull):
			n /= 2
		default:
			r.T.Fatalf("propose: %v", err)
		}
	}
	return taken
}

// draft is a version 2 of n items of 30 KiB.
func (n noise) draft(items int) []byte {
	var put []string
	for i := range items {
		put = append(put, fmt.Sprintf(`{"id":"item%02d","kind":"service","meta":{"note":%q}}`, i, n.text()))
	}
	return fmt.Appendf(nil, `{"schema_version":"1.0.0","version":2,"mode":"delta","remove":[],"put":[%s]}`,
		strings.Join(put, ","))
}

// A full file accepts a withdrawal when it refuses every other write.
func TestWithdrawingMakesRoom(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := newSmallRig(t)
	r.Genesis(newSigners(1, 1), "a")
	for _, p := range fillUp(r) {
		if err := r.Engine.Withdraw(r.Ctx(), alice, p.ID, ""); err != nil {
			t.Fatalf("withdraw: %v", err)
		}
	}
	r.Propose(2, "b")
}

// Expired proposals free room.
func TestExpiryMakesRoom(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newSmallRig(t)
		r.Genesis(newSigners(1, 1), "a")
		fillUp(r)
		r.Advance(r.Config.Proposals.TTL.D() + time.Second)
		r.WaitFor("room", func() bool {
			_, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", "")
			if err != nil && !errors.Is(err, store.ErrFull) {
				t.Fatalf("propose: %v", err)
			}
			return err == nil
		})
	})
}
