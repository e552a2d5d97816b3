package hosttest

import (
	"reflect"
	"strings"
	"testing"
)

// Calls are returned as they end: with a result, or with their thread.
func TestCalls(t *testing.T) {
	const trace = `1  openat(AT_FDCWD<\x2f>, "\x61", O_RDONLY) = 3<\x2f\x61>
2  write(3<\x2f\x61>, "\x62\x63", 2 <unfinished ...>
3  fsync(3<\x2f\x61> <unfinished ...>
1  --- SIGURG {si_signo=SIGURG} ---
2  <... write resumed>)            = 2
1  unlinkat(4<\x2f\x64>, "\x61", 0) = -1 ENOENT (No such file or directory)
3  <... fsync resumed> <unfinished ...>) = ?
2  ftruncate(3<\x2f\x61>(deleted), 7 <unfinished ...>
2  +++ killed by SIGKILL +++
4  pwrite64(3<\x2f\x61>, "\x62"..., 5, 4096 <detached ...>
`
	type call struct {
		name         string
		began, ended int
		number       int64
		failed       bool
		path, last   string
	}
	var got []call
	for c, err := range Calls(strings.NewReader(trace)) {
		if err != nil {
			t.Fatal(err)
		}
		path := ""
		if c.Name == "openat" || c.Name == "unlinkat" {
			path = strings.Join(c.Paths(), " ")
		} else {
			_, path = c.FD()
		}
		got = append(got, call{c.Name, c.Began, c.Ended, c.Number(), c.Failed(), path, c.Last()})
		if data, err := c.Data(); c.Name == "write" && string(data) != "bc" || (err != nil) != (c.Name == "pwrite64" ||
			c.Name == "fsync" || c.Name == "ftruncate") {
			t.Errorf("%s: data %q, %v", c.Name, data, err)
		}
	}
	want := []call{
		{"openat", 1, 1, 3, false, "/a", "O_RDONLY"},
		{"write", 2, 5, 2, false, "/a", "2"},
		{"unlinkat", 6, 6, -1, true, "/d/a", "0"},
		{"fsync", 3, Never, -1, false, "/a", `3<\x2f\x61>`},
		{"ftruncate", 8, Never, -1, false, "", "7"},
		{"pwrite64", 10, Never, -1, false, "/a", "4096"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("calls\n%+v, want\n%+v", got, want)
	}
}
