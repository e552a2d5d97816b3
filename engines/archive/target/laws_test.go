package target_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines/archive/target"
)

// laws are what every target promises. Each gets a fresh target, which was opened.
var laws = []struct {
	name string
	hold func(*testing.T, target.Target)
}{
	{"the mark stays", markStays},
	{"a name is created once", createdOnce},
	{"of many writers of a name one wins", oneWriterWins},
	{"ranges are read", rangesAreRead},
	{"names are listed in order", listedInOrder},
	{"what is deleted is gone", deletedIsGone},
}

func TestLaws(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) target.Target{
		"directory": func(t *testing.T) target.Target { d, _ := opened(t); return d },
		"s3": func(t *testing.T) target.Target {
			d, _ := onFake(t)
			open(t, d)
			return d
		},
		"s3 that writes over names": func(t *testing.T) target.Target {
			d, f := onFake(t)
			f.overwrites = true
			open(t, d)
			return d
		},
		"real": realS3,
	} {
		t.Run(name, func(t *testing.T) {
			for _, law := range laws {
				t.Run(law.name, func(t *testing.T) {
					if strings.Contains(name, "over") && strings.Contains(law.name, "many writers") {
						t.Skip("only a server that refuses can tell")
					}
					law.hold(t, fresh(t))
				})
			}
		})
	}
}

// A new target is opened by several calls at once: by the sender and a closing, or by two nodes. Each
// creates an object then.
func TestOpenedAtOnce(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) target.Target{
		"directory": func(t *testing.T) target.Target {
			d, err := target.Parse("file://"+t.TempDir(), target.Server{})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		"s3": func(t *testing.T) target.Target { d, _ := onFake(t); return d },
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				d := fresh(t)
				var wg sync.WaitGroup
				for i := range 4 {
					name := fmt.Sprintf("%d/x", i)
					from := file(t, name)
					wg.Go(func() {
						err := d.Open(t.Context(), true)
						if err == nil {
							err = d.Create(t.Context(), name, from)
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if err := d.Open(t.Context(), false); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// realS3 returns an unused prefix of the server that the environment names.
func realS3(t *testing.T) target.Target {
	endpoint, bucket := os.Getenv("RONBOX_TEST_S3"), os.Getenv("RONBOX_TEST_S3_BUCKET")
	if endpoint == "" {
		t.Skip("RONBOX_TEST_S3 names no server")
	}
	d, err := target.Parse(fmt.Sprintf("s3://%s/%d", bucket, time.Now().UnixNano()), target.Server{
		Endpoint: endpoint, Region: "us-east-1", CAFile: os.Getenv("RONBOX_TEST_S3_CA"),
		Credentials: func() string { return os.Getenv("RONBOX_TEST_S3_CREDENTIALS") },
	})
	if err != nil {
		t.Fatal(err)
	}
	open(t, d)
	if refuses, err := target.Exclusive(t.Context(), d); err != nil || !refuses {
		t.Errorf("%t, %v: the server does not refuse to write over a name", refuses, err)
	}
	return d
}

func open(t testing.TB, d target.Target) {
	t.Helper()
	if err := d.Open(t.Context(), false); !errors.Is(err, target.ErrChanged) {
		t.Fatalf("a target without a mark: %v", err)
	}
	if err := d.Open(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, d target.Target, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := d.Create(t.Context(), name, file(t, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, d target.Target, name string, from, n int64) string {
	t.Helper()
	raw, err := d.Read(t.Context(), name, from, n)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func markStays(t *testing.T, d target.Target) {
	create(t, d, "a/b")
	if err := errors.Join(d.Open(t.Context(), false), d.Open(t.Context(), true)); err != nil {
		t.Error(err)
	}
	if got := read(t, d, target.Mark, 0, 100); got != "{\"format\":1}\n" {
		t.Errorf("%q", got)
	}
	if err := d.Create(t.Context(), target.Mark, file(t, "x")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
}

func createdOnce(t *testing.T, d target.Target) {
	create(t, d, "a/b", "a/empty")
	if err := d.Create(t.Context(), "a/empty", file(t, "")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
	for _, text := range []string{"other", "a/b", ""} {
		if err := d.Create(t.Context(), "a/b", file(t, text)); !errors.Is(err, target.ErrExists) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := read(t, d, "a/b", 0, 100); got != "a/b" {
		t.Errorf("%q", got)
	}
	if err := d.Create(t.Context(), "a/c", file(t, "")); err != nil {
		t.Error(err)
	}
	if err := d.Create(t.Context(), "a/c", file(t, "x")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
	if err := d.Create(t.Context(), "a/d", "/none"); !errors.Is(err, fs.ErrNotExist) || target.Is(err) {
		t.Errorf("without a file, which is no fault of the target: %v", err)
	}
}

func oneWriterWins(t *testing.T, d target.Target) {
	var wg sync.WaitGroup
	ends := make([]error, 8)
	texts := make([]string, len(ends))
	for i := range ends {
		texts[i] = strings.Repeat(fmt.Sprint(i), 100_000)
		from := file(t, texts[i])
		wg.Go(func() { ends[i] = d.Create(t.Context(), "a/b", from) })
	}
	wg.Wait()
	won := slices.Index(ends, nil)
	for i, err := range ends {
		if i != won && !errors.Is(err, target.ErrExists) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := read(t, d, "a/b", 0, 1<<20); won < 0 || got != texts[won] {
		t.Errorf("%d bytes", len(got))
	}
	if all := names(t, d, "", "", 9); len(all) != 2 {
		t.Errorf("%q", all)
	}
}

func rangesAreRead(t *testing.T, d target.Target) {
	if err := d.Create(t.Context(), "n/x", file(t, "0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, n int64
		want    string
	}{
		{0, 10, "0123456789"}, {0, 1, "0"}, {0, 1 << 30, "0123456789"}, {3, 4, "3456"}, {9, 500, "9"}, {10, 1, ""},
		{11, 7, ""}, {4, 0, ""},
	} {
		if got := read(t, d, "n/x", tt.from, tt.n); got != tt.want {
			t.Errorf("%d bytes from %d: %q, want %q", tt.n, tt.from, got, tt.want)
		}
	}
	if err := d.Create(t.Context(), "n/empty", file(t, "")); err != nil || read(t, d, "n/empty", 0, 9) != "" {
		t.Error(err)
	}
	for _, name := range []string{"n/y", "none/x"} {
		if _, err := d.Read(t.Context(), name, 0, 1); !errors.Is(err, target.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func listedInOrder(t *testing.T, d target.Target) {
	want := []string{"n-/x", "n/l/base/1/0", "n/l/log/1", "n/l/log/2", "n/l2/log/1", target.Mark}
	create(t, d, want[:5]...)
	for _, tt := range []struct {
		prefix, after string
		most          int
		want          []string
	}{
		{"", "", 9, want},
		{"", "", 2, want[:2]},
		{"n/l/", "", 9, want[1:4]},
		{"n/l/log/", "n/l/log/1", 9, want[3:4]},
		{"n/", "n/l/log/1", 9, want[3:5]},
		{"", "n/l/base/2", 9, want[2:]},
		{"none/", "", 9, nil},
	} {
		if got := names(t, d, tt.prefix, tt.after, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("%q after %q: %q, want %q", tt.prefix, tt.after, got, tt.want)
		}
	}
	err := d.List(t.Context(), "n/l/log/1", "", func(i target.Item) bool {
		if age := time.Since(i.At); i.Bytes != int64(len(i.Name)) || age < -time.Hour || age > time.Hour {
			t.Errorf("%+v", i)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

func deletedIsGone(t *testing.T, d target.Target) {
	create(t, d, "a/b", "a/c")
	if err := errors.Join(d.Delete(t.Context(), "a/b"), d.Delete(t.Context(), "a/b"), d.Sweep(t.Context(), "a")); err != nil {
		t.Error(err)
	}
	if got := names(t, d, "", "", 9); !slices.Equal(got, []string{"a/c", target.Mark}) {
		t.Errorf("%q", got)
	}
	create(t, d, "a/b")
}
