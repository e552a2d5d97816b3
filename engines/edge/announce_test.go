package edge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/tables"
)

// picky refuses announcements of one object.
type picky struct {
	*fleetNames
	not b3.Digest
}

func (p *picky) Announce(ctx context.Context, all []b3.Digest, ttl time.Duration) ([]b3.Digest, error) {
	others := slices.DeleteFunc(slices.Clone(all), func(d b3.Digest) bool { return d == p.not })
	done, err := p.fleetNames.Announce(ctx, others, ttl)
	if len(others) < len(all) {
		err = errors.Join(err, errors.New("this one is refused"))
	}
	return done, err
}

// An object whose announcement is refused does not hold up others, nor lets them be announced again.
func TestRefusedAnnouncementHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	const n = 100 + 20
	all := edgetest.Numbered("object", n)
	index := &picky{fleetNames: newFleetNames()}
	for _, body := range all { // the first in the order of digests
		if d := b3.Sum([]byte(body)); index.not.IsZero() || d.String() < index.not.String() {
			index.not = d
		}
	}
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	for _, body := range all {
		if _, err := r.e.Put(t.Context(), content.PutRequest{Body: strings.NewReader(body), Size: -1, Announce: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Add(int64(24 * time.Hour))
	first := time.Now().UnixNano()
	if err := r.e.announcer.Renew(t.Context()); err == nil {
		t.Error("the refusal is not told")
	}
	again, noted := 0, 0
	for _, body := range all {
		d := b3.Sum([]byte(body))
		if index.count(d) == 2 {
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
}

// An object whose file is missing, as after a restore, is not announced again.
func TestNothingMissingIsAnnounced(t *testing.T) {
	t.Parallel()
	index := newFleetNames()
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	var all []b3.Digest
	for _, body := range []string{"here", "missing"} {
		p, err := r.e.Put(t.Context(), content.PutRequest{Body: strings.NewReader(body), Size: -1, Announce: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Digest)
	}
	if err := r.e.content.Dir().Remove(all[1]); err != nil {
		t.Fatal(err)
	}
	r.clock.Add(int64(24 * time.Hour))
	if err := r.e.announcer.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if here, missing := index.count(all[0]), index.count(all[1]); here != 2 || missing != 1 {
		t.Errorf("announced %d times, and the missing one %d times", here, missing)
	}
}

// Manifests that nobody has opened yet are parsed a few at a time, and listed once.
func TestManifestsAreParsedInTurn(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	root := a.Adds(t, "one")
	index := newFleetNames()
	index.set("docs.example", Named{Manifest: root, Owner: a.ID})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(edgetest.View(1, a))
	for range parseSlots {
		if !r.e.manifests.slots.TryAcquire() {
			t.Fatal("a slot is not free")
		}
	}
	got := make(chan error, 4)
	for range cap(got) {
		go func() {
			f, err := r.e.Site(t.Context(), SiteRequest{Name: "docs.example", Path: "f000.txt"})
			if err == nil {
				f.Close()
			}
			got <- err
		}()
	}
	until(t, "one waits", func() bool { return r.e.manifests.flights.Len() == 1 })
	select {
	case err := <-got:
		t.Errorf("it was not waited for: %v", err)
	default:
	}
	r.e.manifests.slots.Release()
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	m, err := r.e.manifest(t.Context(), Named{Manifest: root}, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // as two callers do that both found it missing
		r.e.listing.add(&openedSite{near.Hint{Manifest: b3.Sum([]byte("x")), Name: fmt.Sprint(i)}, objectsOf(m)})
	}
	if n := len(r.e.listing.all); n != 2 || r.e.listing.files != 2 {
		t.Errorf("%d manifests with %d files are listed", n, r.e.listing.files)
	}
	r.sound()
}
