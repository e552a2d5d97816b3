package main

import (
	"bytes"
	"compress/gzip"
	encoding "encoding/binary"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"testing"
)

// Tags of an .rpm header.
const (
	tagName      = 1000
	tagVersion   = 1001
	tagRelease   = 1002
	tagBuildTime = 1006
	tagBuildHost = 1007
	tagArch      = 1022
	tagPostun    = 1026
	tagFileTimes = 1034
)

// rpmHeader reads a header structure and returns its values, from their first byte on, and the
// bytes after it.
func rpmHeader(t *testing.T, b []byte) (values map[int][]byte, rest []byte) {
	t.Helper()
	if !bytes.HasPrefix(b, []byte{0x8e, 0xad, 0xe8, 1}) {
		t.Fatalf("no header: %x", b[:4])
	}
	entries, size := int(encoding.BigEndian.Uint32(b[8:])), int(encoding.BigEndian.Uint32(b[12:]))
	store := b[16+16*entries:]
	values = map[int][]byte{}
	for i := range entries {
		e := b[16+16*i:]
		values[int(encoding.BigEndian.Uint32(e))] = store[encoding.BigEndian.Uint32(e[8:]):size]
	}
	return values, store[size:]
}

// uncpio reads a cpio archive of the form newc and returns its modes and bodies.
func uncpio(t *testing.T, b []byte) map[string]file {
	t.Helper()
	out := map[string]file{}
	for {
		field := func(i int) int {
			n, err := strconv.ParseUint(string(b[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		mode, size, nameSize := field(1), field(6), field(11)
		name := string(b[110 : 110+nameSize-1])
		if name == "TRAILER!!!" {
			return out
		}
		at := (110 + nameSize + 3) &^ 3
		out[name] = file{name: name, mode: fs.FileMode(mode), body: b[at : at+size]}
		b = b[(at+size+3)&^3:]
	}
}

func TestRPMIsReadBack(t *testing.T) {
	r := testRelease(t, targets...)
	b, err := r.rpm(r.binaries[2])
	if err != nil {
		t.Fatal(err)
	}
	const lead = 96
	if !bytes.HasPrefix(b, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Fatalf("no lead: %x", b[:4])
	}
	_, rest := rpmHeader(t, b[lead:])
	offset := (len(b) - len(rest) + 7) &^ 7 // the signature is padded
	values, payload := rpmHeader(t, b[offset:])
	for tag, want := range map[int]string{
		tagName: "ronbox", tagVersion: "1.2.3~rc.1", tagRelease: "1", tagBuildHost: "ronbox-dist", tagArch: "armv7hl",
		tagPostun: strings.TrimSpace(string(postrm)),
	} {
		got, _, _ := bytes.Cut(values[tag], []byte{0})
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("tag %d is %q, want %q", tag, got, want)
		}
	}
	for _, tag := range []int{tagBuildTime, tagFileTimes} {
		if at := encoding.BigEndian.Uint32(values[tag]); int64(at) != made.Unix() {
			t.Errorf("tag %d is %d, want the time of the commit", tag, at)
		}
	}
	z, err := gzip.NewReader(bytes.NewReader(payload)) // with a time that is no time
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	files := uncpio(t, archive)
	for name, want := range map[string]file{
		"/usr/bin/ronbox":                    {mode: rpmRegular | 0o755, body: []byte("\x7fELF for armv7")},
		"/usr/share/licenses/ronbox/LICENSE": {mode: rpmRegular | 0o644, body: []byte("free")},
		"/usr/share/doc/ronbox":              {mode: rpmDirectory | 0o755},
	} {
		if got, ok := files[name]; !ok || got.mode != want.mode || !bytes.Equal(got.body, want.body) {
			t.Errorf("%s is %o %q, want %o %q", name, got.mode, got.body, want.mode, want.body)
		}
	}
}
