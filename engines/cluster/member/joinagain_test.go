package member

import (
	"errors"
	"os"
	"testing"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// A join that was killed while it wrote its mark continues. One that still writes it has the lock.
func TestJoinKilledInItsMark(t *testing.T) {
	l := lead(t)
	d := empty(t)
	unlock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file(clusterDir, joinMark+".tmp"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := l.options(l.token(t, MintSpec{}))
	if _, err := d.Join(t.Context(), o); !errors.Is(err, store.ErrLocked) {
		t.Errorf("beside another join: err = %v, want ErrLocked", err)
	}
	unlock()
	if _, err := d.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
}

// A join refuses a directory that an init has begun to fill since it looked, and leaves it.
func TestJoinBesideInit(t *testing.T) {
	l := lead(t)
	d := empty(t)
	beside := &Dir{path: d.path, database: d.database, step: func(name string) error {
		if name != "mark" {
			return errKilled
		}
		return os.WriteFile(d.file("init.unfinished"), nil, 0o600)
	}}
	o := l.options(l.token(t, MintSpec{}))
	if _, err := beside.Join(t.Context(), o); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("err = %v, want ErrNotEmpty", err)
	}
	if names, err := d.Contents(); err != nil || len(names) != 1 {
		t.Errorf("the directory has %q, %v", names, err)
	}
	if err := os.Remove(d.file("init.unfinished")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
}

// The first identity is gone before the second one is written: a kill meanwhile leaves no mixture.
func TestSecondIdentity(t *testing.T) {
	l := lead(t)
	d := empty(t)
	at := "secrets"
	killed := &Dir{path: d.path, database: d.database, step: func(name string) error {
		if name == at {
			return errKilled
		}
		return nil
	}}
	if _, err := killed.Join(t.Context(), l.options(l.token(t, MintSpec{}))); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	id, err := d.Identity()
	if err == nil {
		err = Forget(t.Context(), l.store, id.ServerID()) // as after a day
	}
	if err != nil {
		t.Fatal(err)
	}
	at = "identity"
	o := l.options(l.token(t, MintSpec{}))
	if _, err := killed.Join(t.Context(), o); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if d.exists(clusterDir, peer.NodeFile) {
		t.Error("the first identity is there")
	}
	if _, err := d.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
}

// A directory may have a folder for lost files and the test file of a doctor.
func TestJoinOnFreshDisk(t *testing.T) {
	l := lead(t)
	d := empty(t)
	err := errors.Join(os.MkdirAll(d.file("lost+found"), 0o700), os.WriteFile(d.file(".ronbox-sync-1"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
}
