package edge_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/pack"
)

// A member that does not lead serves objects by their hashes, sites and packs from its files, and
// neither waits for tasks that do not run nor writes. Recover goes on from there.
func TestStand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := newNames()
	r := newRig(t, func(r *rig) { r.cfg.PacksDir, r.names = dir, names }).start()
	big := strings.Repeat("x", hotObject+1)
	r.publish(names, docs, map[string]string{"index.html": "<h1>", "big.bin": big})
	r.mustPut("lost")
	r.mustPut("rotten")
	r.mustPut("read")
	lost, rotten := b3.Sum([]byte("lost")), b3.Sum([]byte("rotten"))
	r.stop()
	if err := errors.Join(os.Remove(r.file(lost)), os.Chmod(r.file(rotten), 0o600),
		os.WriteFile(r.file(rotten), []byte("ROTTEN"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.openStore()
	seq := r.store.Info().Seq
	stand := func() {
		t.Helper()
		if err := r.e.Stand(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stand()
	for range 2 {
		r.want(asset.PathOf(b3.Sum([]byte(big))), big)
		r.mustVisit(docs, "", "<h1>")
	}
	// what was read stays in memory when the file changes
	read := b3.Sum([]byte("read"))
	for r.want(asset.PathOf(read), "read").From != asset.FromHot {
		time.Sleep(time.Millisecond) // the memory takes it in soon after
	}
	if err := os.Rename(r.file(read), r.file(read)+".away"); err != nil {
		t.Fatal(err)
	}
	stand()
	r.want(asset.PathOf(read), "read")
	if err := os.Rename(r.file(read)+".away", r.file(read)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for _, d := range []b3.Digest{lost, rotten, b3.Sum([]byte("none"))} {
		if _, _, err := r.read(asset.PathOf(d)); !content.IsMiss(err) {
			t.Errorf("%s: %v", d, err)
		}
	}
	if took := time.Since(begun); took >= 2*time.Second {
		t.Errorf("misses took %v", took)
	}

	toner, err := os.ReadFile("../../testdata/packs/stamen_toner_z3.pmtiles")
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "toner.pmtiles"), toner, 0o600)); err != nil {
		t.Fatal(err)
	}
	stand()
	at, anyCoding := pack.TileRef{Pack: "toner", Z: 1}, func(pack.Coding) bool { return true }
	if _, err := r.e.Packs().Tile(t.Context(), at, anyCoding); err != nil {
		t.Errorf("a tile: %v", err)
	}
	if info, err := r.e.Packs().Info("toner"); err != nil || info.State != asset.PackVerifying {
		t.Errorf("%+v, %v", info, err)
	}
	if got := r.store.Info().Seq; got != seq {
		t.Errorf("a standby has committed: seq %d, was %d", got, seq)
	}

	if err := r.e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Packs().Tile(t.Context(), at, anyCoding); err != nil {
		t.Errorf("a tile while no opener runs: %v", err)
	}
	r.start()
	until(t, "the pack is verified", func() bool {
		info, err := r.e.Packs().Info("toner")
		return err == nil && info.State == asset.PackVerified
	})
	r.want(asset.PathOf(b3.Sum([]byte(big))), big)
	o, err := r.e.Asset(t.Context(), "toner.pmtiles", "")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if n, err := io.Copy(io.Discard, o.File); err != nil || n != int64(len(toner)) {
		t.Errorf("%d bytes of the pack, %v", n, err)
	}
}
