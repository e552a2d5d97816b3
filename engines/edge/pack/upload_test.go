package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/edge/asset"
)

func upload(file string, b []byte) Upload {
	return Upload{File: file, Body: bytes.NewReader(b), Size: int64(len(b)), Expect: b3.Sum(b)}
}

// names returns the names of the files of a folder.
func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		out = append(out, f.Name())
	}
	return out
}

// An uploaded pack is verified at once, with and without the tasks of the set, also after a restart.
func TestUpload(t *testing.T) {
	r, s, dir := newPackRig(t)
	for _, name := range []string{"stamen_toner_z3.pmtiles", "twolayers.mbtiles"} {
		b, err := os.ReadFile(filepath.Join(realPacks, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, wantFresh := range []bool{true, false} {
			u := upload(name, b)
			u.Size = -1
			info, fresh, err := s.Upload(t.Context(), u)
			if err != nil || fresh != wantFresh || info.State != asset.PackVerified || info.Digest != b3.Sum(b) ||
				info.Tiles == 0 || info.Next != "" {
				t.Errorf("%s: %+v, new %t, %v", name, info, fresh, err)
			}
		}
	}
	r.start()
	until(t, "the rows are stored", func() bool {
		rows, err := s.readRows(t.Context())
		return err == nil && len(rows) == 2
	})
	r.stop()
	r.open() // without a verifier
	openAll(t, r.set)
	if got, want := states(r.set.List()), "stamen_toner_z3 verified, twolayers verified"; got != want {
		t.Errorf("after a restart: %s, want %s", got, want)
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("the folder has %q", got)
	}
}

// A pack is replaced while its tiles are read: each reader gets a tile of one or the other.
func TestUploadUnderReaders(t *testing.T) {
	r, s, _ := newPackRig(t)
	r.start()
	files := [][]byte{made("old 1", "old").bytes(), made("next 2", "next").bytes()}
	if _, _, err := s.Upload(t.Context(), upload("p.pmtiles", files[1])); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding)
				if text := string(got.Bytes); err != nil || text != "old 1" && text != "next 2" {
					t.Errorf("%q, %v", text, err)
					return
				}
				got.Close()
			}
		})
	}
	for i := range 20 {
		info, fresh, err := s.Upload(t.Context(), upload("p.pmtiles", files[i%2]))
		if err != nil || fresh || info.Digest != b3.Sum(files[i%2]) || info.State != asset.PackVerified {
			t.Errorf("%d: %+v, new %t, %v", i, info, fresh, err)
		}
	}
	stop()
	readers.Wait()
}

// What is refused, cut or without room leaves nothing, and the pack that has its name serves on.
func TestRefusedUploads(t *testing.T) {
	sound, bad := made("old 1", "old").bytes(), made(broken, broken).bytes()
	refused := func(err error) bool { return errors.As(err, new(*RefusedError)) }
	full := func(err error) bool { return errors.As(err, new(*RoomError)) }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	tear := errors.New("torn")
	for _, tt := range []struct {
		doc  string
		u    Upload
		set  func(s *Set)
		want func(error) bool
	}{
		{"unsound", upload("p.pmtiles", bad), nil, refused},
		{"no pack", upload("p.pmtiles", []byte("hello")), nil, refused},
		{"no database", upload("q.mbtiles", []byte("hello")), nil, refused},
		{"empty", upload("q.pmtiles", nil), nil, refused},
		{"its id is taken", upload("p.mbtiles", sound), nil, refused},
		{"cut", Upload{File: "p.pmtiles", Body: bytes.NewReader(sound), Size: int64(len(sound)) + 1}, nil,
			is(io.ErrUnexpectedEOF)},
		{"torn", Upload{File: "p.pmtiles", Size: -1,
			Body: io.MultiReader(bytes.NewReader(sound), iotest.ErrReader(tear))}, nil, is(tear)},
		{"other bytes", Upload{File: "p.pmtiles", Body: bytes.NewReader(sound), Expect: b3.Sum(nil)}, nil,
			func(err error) bool { return errors.As(err, new(*asset.DigestError)) }},
		{"capital letters", upload("P.pmtiles", sound), nil, is(ErrName)},
		{"extension", upload("p.zip", sound), nil, is(ErrName)},
		{"path", upload("../p.pmtiles", sound), nil, is(ErrName)},
		{"hidden", upload(".upload-1.pmtiles", sound), nil, is(ErrName)},
		{"amnesia", upload("p.pmtiles", sound), func(s *Set) { s.Amnesia = true }, is(asset.ErrAmnesia)},
		{"off", upload("p.pmtiles", sound), func(s *Set) { s.env.cfg.MaxBytes = 0 }, full},
		{"folder full", upload("q.pmtiles", sound),
			func(s *Set) { s.env.cfg.MaxBytes = unit.Size(2*len(sound) - 1) }, full},
		{"folder full, of unknown length", Upload{File: "q.pmtiles", Body: bytes.NewReader(sound), Size: -1},
			func(s *Set) { s.env.cfg.MaxBytes = unit.Size(2*len(sound) - 1) }, full},
		{"disk full", upload("p.pmtiles", sound), func(s *Set) { s.Spare = 1 << 60 }, full},
	} {
		_, s, dir := newPackRig(t)
		if _, _, err := s.Upload(t.Context(), upload("p.pmtiles", sound)); err != nil {
			t.Fatal(err)
		}
		if tt.set != nil {
			tt.set(s)
		}
		if _, _, err := s.Upload(t.Context(), tt.u); err == nil || !tt.want(err) {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"p.pmtiles"}) {
			t.Errorf("%s: the folder has %q", tt.doc, got)
		}
		got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding)
		if err != nil || string(got.Bytes) != "old 1" || s.uploading.Load() != 0 {
			t.Errorf("%s: %q, %v, %d bytes stay reserved", tt.doc, got.Bytes, err, s.uploading.Load())
		}
	}
}

// A pack that takes the place of another needs room for itself alone.
func TestUploadReplacesInFullFolder(t *testing.T) {
	_, s, _ := newPackRig(t)
	sound := made("old 1", "old").bytes()
	s.env.cfg.MaxBytes = unit.Size(len(sound))
	for range 2 {
		if _, _, err := s.Upload(t.Context(), upload("p.pmtiles", sound)); err != nil {
			t.Error(err)
		}
	}
}

// A removed pack is not served, and its file is gone. What is no pack stays.
func TestRemove(t *testing.T) {
	_, s, dir := newPackRig(t)
	if _, _, err := s.Upload(t.Context(), upload("p.pmtiles", made("old 1", "old").bytes())); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d.pmtiles"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]error{
		"q.pmtiles": ErrMissing, "p.mbtiles": ErrMissing, "d.pmtiles": ErrMissing, "../p.pmtiles": ErrName, "p": ErrName,
	} {
		if err := s.Remove(file); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", file, err, want)
		}
	}
	s.Amnesia = true
	if err := s.Remove("p.pmtiles"); !errors.Is(err, asset.ErrAmnesia) {
		t.Errorf("amnesia: %v", err)
	}
	s.Amnesia = false
	if err := s.Remove("p.pmtiles"); err != nil {
		t.Error(err)
	}
	if _, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding); !errors.Is(err, ErrMissing) {
		t.Errorf("a tile of it: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"d.pmtiles"}) {
		t.Errorf("the folder has %q", got)
	}
}

// A scan skips the file of a running upload. The start removes those of a process that was killed.
func TestRestOfUpload(t *testing.T) {
	r, s, dir := newPackRig(t)
	sound := made("old 1", "old").bytes()
	looks := 0
	u := upload("p.pmtiles", sound)
	u.Body = io.MultiReader(bytes.NewReader(sound), reader(func([]byte) (int, error) {
		looks++
		if err := s.scan(lookAtOnce); err != nil || len(s.List()) != 0 || len(names(t, dir)) != 1 {
			t.Errorf("%v, %s, %q", err, states(s.List()), names(t, dir))
		}
		return 0, io.EOF
	}))
	if _, _, err := s.Upload(t.Context(), u); err != nil || looks != 1 {
		t.Errorf("%v, %d looks", err, looks)
	}
	if err := os.WriteFile(filepath.Join(dir, uploadPrefix+"1"), sound[:9], 0o600); err != nil {
		t.Fatal(err)
	}
	r.reboot()
	if got := names(t, dir); !slices.Equal(got, []string{"p.pmtiles"}) {
		t.Errorf("after a restart the folder has %q", got)
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// The room of an upload is reserved until its file has its name, and counts once after that.
func TestUploadKeepsRoomWhileChecked(t *testing.T) {
	_, s, _ := newPackRig(t)
	sound := made("old 1", "old").bytes()
	s.env.cfg.MaxBytes = unit.Size(2 * len(sound))
	var reserved []int64 // after each sync
	s.Synced = func() {
		reserved = append(reserved, s.uploading.Load())
		if len(reserved) == 2 { // the file has its name
			a, err := s.Reserve("q.pmtiles", 0, int64(len(sound)))
			if err != nil {
				t.Error(err)
				return
			}
			a.End()
		}
	}
	_, _, err := s.Upload(t.Context(), upload("p.pmtiles", sound))
	if want := []int64{int64(len(sound)), 0}; err != nil || !slices.Equal(reserved, want) || s.uploading.Load() != 0 {
		t.Errorf("%v, %d bytes are reserved, want %d", err, reserved, want)
	}
}

// Of two uploads with one id, which both have been checked, one is refused.
func TestUploadsOfOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, dir := newPackRig(t)
		b, err := os.ReadFile(filepath.Join(realPacks, "twolayers.mbtiles"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.naming.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		for _, u := range []Upload{upload("p.pmtiles", made("old 1", "old").bytes()), upload("p.mbtiles", b)} {
			go func() {
				_, _, err := s.Upload(t.Context(), u)
				done <- err
			}()
		}
		synctest.Wait() // both wait for their names
		s.naming.Release()
		first, second := <-done, <-done
		if (first == nil) == (second == nil) || !errors.As(cmp.Or(first, second), new(*RefusedError)) {
			t.Errorf("%v; %v", first, second)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("the folder has %q", got)
		}
	})
}
