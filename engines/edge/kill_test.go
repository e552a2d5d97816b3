package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/extract"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/packtest"
	"ronbox/store"
)

// childEnv makes a process of the test a node: it has the work, the number of the sync at which the
// node stops, the data directory, and a host with the file of its certificate.
const childEnv = "RONBOX_EDGE_CHILD"

// childTB lets a child have a rig.
type childTB struct{ nopTB }

func (childTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (childTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (childTB) Error(args ...any)                 { panic(fmt.Sprint(args...)) }

// runChild does the work of a child. It prints "at" and stops at a sync, or prints "done".
func runChild(text string) int {
	var work, dir, name, ca string
	var at int
	if _, err := fmt.Sscan(text, &work, &at, &dir, &name, &ca); err != nil {
		fmt.Println(err)
		return 1
	}
	r := rigIn(childTB{}, dir, &host{name: name, ca: ca})
	r.openStore()
	n := 0
	*r.e.Synced() = func() {
		if n++; n == at {
			fmt.Println("at")
			select {}
		}
	}
	if err := r.e.Recover(context.Background()); err != nil {
		fmt.Println(err)
		return 1
	}
	r.start()
	if work == "upload" {
		b := packtest.World(2, 20_000)
		u := pack.Upload{File: "w.pmtiles", Body: bytes.NewReader(b), Size: int64(len(b))}
		if _, _, err := r.e.Packs().Upload(context.Background(), u); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("done")
		return 0
	}
	if r.state("w").State == "" {
		q := extract.Request{Pack: "w", URL: "https://" + name + "/world.pmtiles"}
		if _, err := r.e.Extracts().Begin(context.Background(), q); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for i := r.state("w"); i.State != extract.Done; i = r.state("w") {
		if i.State == extract.Failed || i.Fault != "" {
			fmt.Println(i.State, i.Fault)
			return 1
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("done")
	return 0
}

// rigIn returns a rig of a folder, which may have a file. Nothing is open.
func rigIn(t testing.TB, dir string, h *host) *rig {
	r := &rig{t: t, dir: dir, cfg: config.DefaultConfig(), log: hclog.NewNullLogger(), stopped: true}
	r.cfg.CAS.MinFree = 0
	on(h)(r)
	if _, err := os.Stat(r.db()); err == nil {
		return r
	}
	id, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(r.db(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// killedAt runs a child and kills it at a sync. It reports whether the child was done before.
func killedAt(t *testing.T, work string, at int, dir string, h *host) (done bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %s %s", childEnv, work, at, dir, h.name, h.ca))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill() // it may have ended
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if line = strings.TrimSpace(line); line != "at" && line != "done" {
		t.Fatalf("%s, sync %d: %q, %v", work, at, line, err)
	}
	return line == "done"
}

// checkPacks verifies all files of a folder of packs, and returns their names.
func checkPacks(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dir, "packs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
		if f.Name()[0] == '.' {
			continue
		}
		path := filepath.Join(dir, "packs", f.Name())
		if got, err := pack.Verify(t.Context(), path, [32]byte{}, func(int64, int64) {}); err != nil ||
			len(got.Faults)+len(got.Info.Warnings) > 0 {
			t.Errorf("%s: %+v, %v", f.Name(), got, err)
		}
	}
	return names
}

// A node that is killed at any sync of an extract goes on with it. The pack is whole, and the host
// has sent little more than its bytes.
func TestKillExtract(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	h, dir, kills := newMapHost(t), t.TempDir(), 0
	for !killedAt(t, "extract", 1+kills%4, dir, h.host) {
		kills++
		if names := checkPacks(t, dir); kills > 20 || len(names) > 0 && names[0] != ".extracts" {
			t.Fatalf("after %d kills: %q", kills, names)
		}
	}
	r := rigIn(t, dir, h.host)
	r.open()
	defer r.stop()
	i := r.state("w")
	if i.State != extract.Done || kills < 7 {
		t.Errorf("%+v after %d kills", i, kills)
	}
	if sent := h.sent.Load(); sent > i.Bytes*12/10 {
		t.Errorf("the host has sent %d bytes for %d", sent, i.Bytes)
	}
	if names := checkPacks(t, dir); !slices.Equal(names, []string{".extracts", "w.pmtiles"}) {
		t.Errorf("%q", names)
	}
	r.start()
	until(t, "it is served", func() bool { info, err := r.e.Packs().Info("w"); return err == nil && info.Ready() == nil })
	r.isWorld("w", false)
	t.Logf("%d kills, %d bytes sent for %d", kills, h.sent.Load(), i.Bytes)
}

// A node that is killed at a sync of an upload has the pack or its predecessor, whole, and no rest.
func TestKillUpload(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	h := newMapHost(t)
	for at := 1; ; at++ {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "packs"), 0o700); err != nil {
			t.Fatal(err)
		}
		old := packtest.World(1, 100)
		if err := os.WriteFile(filepath.Join(dir, "packs", "w.pmtiles"), old, 0o600); err != nil {
			t.Fatal(err)
		}
		done := killedAt(t, "upload", at, dir, h.host)
		checkPacks(t, dir)
		r := rigIn(t, dir, h.host)
		r.open()
		if names := checkPacks(t, dir); !slices.Equal(names, []string{"w.pmtiles"}) {
			t.Errorf("sync %d: %q", at, names)
		}
		r.stop()
		if b, err := os.ReadFile(filepath.Join(dir, "packs", "w.pmtiles")); err != nil || (at == 1) != bytes.Equal(b, old) {
			t.Errorf("sync %d: %d bytes, %v", at, len(b), err)
		}
		if done {
			if at != 3 {
				t.Errorf("an upload has %d syncs", at-1)
			}
			return
		}
	}
}
