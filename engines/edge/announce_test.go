package edge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/tables"
)

// picky refuses announcements of one object.
type picky struct {
	*edgetest.Index
	not b3.Digest
}

func (p *picky) Announce(ctx context.Context, all []b3.Digest, ttl time.Duration) ([]b3.Digest, error) {
	others := slices.DeleteFunc(slices.Clone(all), func(d b3.Digest) bool { return d == p.not })
	done, err := p.Index.Announce(ctx, others, ttl)
	if len(others) < len(all) {
		err = errors.Join(err, errors.New("this one is refused"))
	}
	return done, err
}

// renewed lets the task announcer renew once, in virtual time.
func renewed() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// An object whose announcement is refused does not hold up others, nor lets them be announced again.
func TestRefusedAnnouncementHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 100 + 20
		all := edgetest.Numbered("object", n)
		index := &picky{Index: edgetest.NewIndex()}
		for _, body := range all { // the first in the order of digests
			if d := b3.Sum([]byte(body)); index.not.IsZero() || d.String() < index.not.String() {
				index.not = d
			}
		}
		r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
		for _, body := range all {
			put := content.PutRequest{Body: strings.NewReader(body), Size: -1, Announce: true}
			if _, err := r.e.Put(t.Context(), put); err != nil {
				t.Fatal(err)
			}
		}
		r.clock.Add(int64(24 * time.Hour))
		first := time.Now().UnixNano()
		renewed()
		again, noted := 0, 0
		for _, body := range all {
			d := b3.Sum([]byte(body))
			if index.Count(d) == 2 {
				again++
			}
			if row, err := tables.Find(t.Context(), r.store, tables.Announced, d); err == nil && row.At > first {
				noted++
			}
		}
		if again != n-1 || noted != n-1 {
			t.Errorf("of %d, %d were announced again and %d noted", n, again, noted)
		}
		r.sound()
		r.stop()
	})
}

// An object whose file is missing, as after a restore, is not announced again.
func TestNothingMissingIsAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		index := edgetest.NewIndex()
		r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
		var all []b3.Digest
		for _, body := range []string{"here", "missing"} {
			p, err := r.e.Put(t.Context(), content.PutRequest{Body: strings.NewReader(body), Size: -1, Announce: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p.Digest)
		}
		if err := r.e.Content().Dir().Remove(all[1]); err != nil {
			t.Fatal(err)
		}
		r.clock.Add(int64(24 * time.Hour))
		renewed()
		if here, missing := index.Count(all[0]), index.Count(all[1]); here != 2 || missing != 1 {
			t.Errorf("announced %d times, and the missing one %d times", here, missing)
		}
		r.stop()
	})
}
