package peer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSaveLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if _, err := Load(dir, schema); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no directory: err = %v, want fs.ErrNotExist", err)
	}
	a := found(t)
	if err := a.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, schema)
	if err != nil {
		t.Fatal(err)
	}
	if got.info != a.info || got.Pin() != a.Pin() || !bytes.Equal(got.CertPEM(), a.CertPEM()) {
		t.Errorf("loaded %+v, want %+v", got.info, a.info)
	}
	if got.Authority() == nil || got.NotAfter().Before(time.Now().Add(nodeLife-time.Hour)) {
		t.Errorf("authority %v, valid until %v", got.Authority(), got.NotAfter())
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files, err = %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, err = %v", f.Name(), info.Mode(), err)
		}
	}
	b := another(t, got) // the loaded authority signs
	if _, err := b.WithAuthority(found(t).Authority()); err == nil {
		t.Error("WithAuthority accepts another cluster")
	}
	if b, err = b.WithAuthority(got.Authority()); err != nil || b.Authority() == nil {
		t.Errorf("WithAuthority: err = %v", err)
	}
}

func TestLoadFaults(t *testing.T) {
	other := t.TempDir()
	if err := found(t).Save(other); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc   string
		spoil func(t *testing.T, dir string) error
		want  error
	}{
		{"no node.json", func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, NodeFile)) },
			fs.ErrNotExist},
		{"an open key", func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, KeyFile), 0o640) },
			ErrExposed},
		{"an open key of the authority", func(_ *testing.T, dir string) error {
			return os.Chmod(filepath.Join(dir, CAKeyFile), 0o644)
		}, ErrExposed},
		{"the authority of another", swap(other, CACertFile), nil},
		{"the key of the authority of another", swap(other, CAKeyFile), nil},
		{"the certificate of another", swap(other, CertFile), ErrStranger},
		{"the key of another", func(t *testing.T, dir string) error {
			return errors.Join(swap(other, KeyFile)(t, dir), os.Remove(filepath.Join(dir, CAKeyFile)))
		}, nil},
		{"the node of another", swap(other, NodeFile), nil},
		{"a long file", func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, NodeFile), bytes.Repeat([]byte(" "), maxFile+1), 0o600)
		}, nil},
		{"not PEM", func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, CertFile), []byte("x"), 0o600)
		}, nil},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(found(t).Save(dir), tt.spoil(t, dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir, schema); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

// swap copies a file from another directory.
func swap(from, name string) func(*testing.T, string) error {
	return func(_ *testing.T, dir string) error {
		text, err := os.ReadFile(filepath.Join(from, name))
		return errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
}

// A Save that was cut off after any of its files leaves no identity, and can be repeated.
func TestSaveCutOff(t *testing.T) {
	a := found(t)
	whole := t.TempDir()
	if err := a.Save(whole); err != nil {
		t.Fatal(err)
	}
	order := []string{CACertFile, KeyFile, CertFile, CAKeyFile}
	for n := range len(order) + 1 {
		dir := t.TempDir()
		for _, name := range order[:n] {
			if err := swap(whole, name)(t, dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Load(dir, schema); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d files: err = %v, want fs.ErrNotExist", n, err)
		}
		if err := a.Save(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, schema); err != nil {
			t.Errorf("saved again after %d files: %v", n, err)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for addr, ok := range map[string]bool{
		"10.0.0.1:7946": true, "[2001:db8::1]:7946": true, "node-a.example:7946": true,
		"": false, "10.0.0.1": false, ":7946": false, "0.0.0.0:7946": false, "[::]:7946": false, "a:0": false,
		"a:http": false, "a:65536": false,
	} {
		if err := CheckAddress(addr); (err == nil) != ok {
			t.Errorf("%q: err = %v, want ok = %v", addr, err, ok)
		}
	}
}

func TestIssueBadIDs(t *testing.T) {
	a := found(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "x", "../" + a.ServerID(), a.ServerID() + "/"} {
		if _, err := a.Authority().Issue(id, key.Public().(publicKey), time.Now()); err == nil {
			t.Errorf("Issue accepts the id %q", id)
		}
	}
	if _, err := a.Authority().Issue(a.ServerID(), nil, time.Now()); err == nil {
		t.Error("Issue accepts no key")
	}
}

// The address of a node is cluster.advertise. Without it, it follows cluster.bind if it was that.
func TestFollow(t *testing.T) {
	const old, bind, other = "10.0.0.1:7946", "10.0.0.2:7946", "node.example.org:7946"
	for _, tt := range []struct{ doc, advertise, from, setting, bind, want, records string }{
		{"nothing has changed", old, old, "", old, old, old},
		{"the first boot", old, "", "", old, old, old},
		{"the bind has changed", old, old, "", bind, bind, bind},
		{"a setting", old, old, other, bind, other, bind},
		{"the setting is gone", other, bind, "", bind, other, bind},
		{"an address of its own", other, old, "", bind, other, bind},
		{"the first boot, with another bind", old, "", "", bind, old, bind},
		{"all interfaces have no address", old, old, "", "0.0.0.0:7946", old, old},
	} {
		i := &Identity{info: NodeInfo{Advertise: tt.advertise, Bind: tt.from}}
		got := i.Follow(tt.setting, tt.bind)
		if got.info.Advertise != tt.want || got.info.Bind != tt.records || (got == i) != (got.info == i.info) {
			t.Errorf("%s: %+v, want %s, %s", tt.doc, got.info, tt.want, tt.records)
		}
		if again := got.Follow(tt.setting, tt.bind); again != got {
			t.Errorf("%s: it changes again: %+v", tt.doc, again.info)
		}
	}
}
