package registry

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
	"ronbox/engines/registry/document"
	"ronbox/store"
)

// newSmallRig is a rig on a file of at most 32 MiB, in memory.
func newSmallRig(t *testing.T) *rig {
	t.Helper()
	memory := store.DefaultAmnesiaConfig()
	memory.MaxBytes = 32 << 20
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "none"), cfg: DefaultConfig(), memory: &memory}
	r.cfg.Origin, r.cfg.Proposals.MaxPending, r.cfg.Proposals.MaxPerCap, r.cfg.Timeouts = testOrigin, 512, 512, patient
	r.open()
	t.Cleanup(r.stop)
	return r.start()
}

// noise is text that does not compress.
type noise struct{ *rand.ChaCha8 }

func (n noise) text() string {
	b := make([]byte, 22<<10)
	_, _ = n.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// fillUp proposes ever smaller versions until none fits, and returns the accepted ones.
func (r *rig) fillUp() (taken []document.Proposed) {
	r.t.Helper()
	source := noise{rand.NewChaCha8([32]byte{})}
	for n := 4; n > 0; {
		p, err := r.e.Propose(r.ctx(), alice, source.draft(n), "", "")
		switch {
		case err == nil:
			taken = append(taken, p)
		case errors.Is(err, store.ErrFull):
			n /= 2
		default:
			r.t.Fatalf("propose: %v", err)
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
	r.genesis(newSigners(1, 1), "a")
	for _, p := range r.fillUp() {
		if err := r.e.Withdraw(r.ctx(), alice, p.ID, ""); err != nil {
			t.Fatalf("withdraw: %v", err)
		}
	}
	r.propose(2, "b")
}

// Expired proposals free room.
func TestExpiryMakesRoom(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newSmallRig(t)
		r.genesis(newSigners(1, 1), "a")
		r.fillUp()
		r.advance(r.cfg.Proposals.TTL.D() + time.Second)
		r.waitFor("room", func() bool {
			_, err := r.e.Propose(r.ctx(), alice, delta(2, "b"), "", "")
			if err != nil && !errors.Is(err, store.ErrFull) {
				t.Fatalf("propose: %v", err)
			}
			return err == nil
		})
	})
}
