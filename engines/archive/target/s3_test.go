package target_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/engines/archive/target"
)

// ready returns a target that was opened, has one object and knows how its server creates.
func ready(t *testing.T) (target.Target, *fakeS3) {
	t.Helper()
	d, f := onFake(t)
	open(t, d)
	create(t, d, "first")
	return d, f
}

// eachMethod makes a call of each method.
func eachMethod(ctx context.Context, d target.Target, file string) map[string]error {
	_, read := d.Read(ctx, "first", 0, 1)
	return map[string]error{
		"create": d.Create(ctx, "a/b", file), "read": read,
		"list":   d.List(ctx, "", "", func(target.Item) bool { return true }),
		"delete": d.Delete(ctx, "first"), "open": d.Open(ctx, false),
	}
}

// secretless fails if a text repeats a credential.
func secretless(t *testing.T, text string) {
	t.Helper()
	for _, planted := range []string{accessKey, secretKey, token, "planted", "AWS4"} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(planted)) {
			t.Errorf("it repeats %q: %s", planted, text)
		}
	}
}

// An answer is the error that its caller acts on. It repeats nothing that the server was sent.
func TestAnswers(t *testing.T) {
	kinds := []error{
		target.ErrExists, target.ErrNotExist, target.ErrChanged, target.ErrUnreachable, target.ErrDenied, target.ErrFull,
	}
	for _, tt := range []struct {
		status int
		code   string
		want   error
		hint   string
	}{
		{403, "AccessDenied", target.ErrDenied, "403 AccessDenied"},
		{403, "InvalidAccessKeyId", target.ErrDenied, "credentials file"},
		{403, "RequestTimeTooSkewed", target.ErrDenied, "clock"},
		{403, "QuotaExceeded", target.ErrFull, ""},
		{507, "", target.ErrFull, "507"},
		{404, "NoSuchBucket", target.ErrUnreachable, "create the bucket"},
		{301, "PermanentRedirect", target.ErrDenied, "region"},
		{400, "AuthorizationHeaderMalformed", target.ErrDenied, "region"},
		{400, "planted " + token, target.ErrDenied, "400 Bad Request"},
		{405, "MethodNotAllowed", target.ErrDenied, ""},
	} {
		d, f := ready(t)
		f.set(func() {
			f.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				refuse(w, tt.status, tt.code, r.Header.Get("Authorization")+r.Header.Get("X-Amz-Security-Token"))
				return true
			}
		})
		for what, err := range eachMethod(t.Context(), d, file(t, "x")) {
			for _, kind := range kinds {
				if errors.Is(err, kind) != (kind == tt.want) {
					t.Fatalf("%d %s: %s: %v", tt.status, tt.code, what, err)
				}
			}
			text := err.Error()
			if !strings.Contains(text, tt.hint) || !strings.Contains(text, "s3://bucket/some/where/") {
				t.Errorf("%d %s: %s: %s", tt.status, tt.code, what, text)
			}
			secretless(t, text)
		}
	}
}

// A server that refuses connections, or does not answer in time, is away. A canceled call is not
// the server's fault.
func TestAway(t *testing.T) {
	d, f := ready(t)
	hold := make(chan struct{})
	f.set(func() {
		f.fault = func(int, http.ResponseWriter, *http.Request) bool { <-hold; return true }
	})
	for what, want := range map[string]error{"late": context.DeadlineExceeded, "canceled": context.Canceled} {
		ctx, cancel := context.WithCancel(t.Context())
		if cancel(); want == context.DeadlineExceeded {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		}
		err := d.Create(ctx, "a/b", file(t, "x"))
		if !errors.Is(err, want) || errors.Is(err, target.ErrUnreachable) != (what == "late") {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	close(hold)
	f.stop()
	for what, err := range eachMethod(t.Context(), d, file(t, "x")) {
		if !errors.Is(err, target.ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// drop closes the connection of a request.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// An object that was written by half has no name. One whose answer was lost exists.
func TestCutOff(t *testing.T) {
	d, f := ready(t)
	from := file(t, strings.Repeat("x", 4<<20))
	f.set(func() { f.cut = 1 << 20 })
	if err := d.Create(t.Context(), "a/b", from); !errors.Is(err, target.ErrUnreachable) {
		t.Error(err)
	}
	if got := names(t, d, "a/", "", 9); got != nil {
		t.Errorf("%q", got)
	}
	f.set(func() { f.cut, f.after = 0, drop })
	if err := d.Create(t.Context(), "a/b", from); !errors.Is(err, target.ErrUnreachable) {
		t.Error(err)
	}
	f.set(func() { f.after = nil })
	if err := d.Create(t.Context(), "a/b", from); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
	if got := read(t, d, "a/b", 0, 5<<20); len(got) != 4<<20 {
		t.Errorf("%d bytes", len(got))
	}
}

// Calls other than Create are repeated until the server does its work.
func TestEveryOtherRequestFails(t *testing.T) {
	for what, fault := range map[string]func(http.ResponseWriter){
		"503":     func(w http.ResponseWriter) { refuse(w, http.StatusServiceUnavailable, "SlowDown", "") },
		"dropped": drop,
		"short": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("fi"))
		},
	} {
		d, f := ready(t)
		create(t, d, "a/b")
		f.set(func() {
			f.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
				bad := n%2 == 0 && (what != "short" || r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/"))
				if bad {
					fault(w)
				}
				return bad
			}
			f.perPage = 1
		})
		if got := read(t, d, "first", 0, 5) + read(t, d, "a/b", 0, 9); got != "firsta/b" {
			t.Errorf("%s: %q", what, got)
		}
		if got := names(t, d, "", "", 9); !slices.Equal(got, []string{"a/b", "first", target.Mark}) {
			t.Errorf("%s: %q", what, got)
		}
		if err := errors.Join(d.Delete(t.Context(), "a/b"), d.Delete(t.Context(), "first")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for n := 0; n < 3; n++ {
			err := d.Create(t.Context(), "a/c", file(t, "x"))
			if err == nil {
				break
			}
			if !errors.Is(err, target.ErrUnreachable) || n == 2 {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := read(t, d, "a/c", 0, 9); got != "x" {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// A list may be stale; Create does not look at it.
func TestStaleList(t *testing.T) {
	d, f := ready(t)
	create(t, d, "a/b")
	f.set(func() { f.hidden = []string{"some/where/a/b"} })
	if got := names(t, d, "a/", "", 9); got != nil {
		t.Errorf("%q", got)
	}
	if err := d.Create(t.Context(), "a/b", file(t, "x")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
}

// A list that would never end is refused.
func TestListThatRepeats(t *testing.T) {
	d, f := ready(t)
	create(t, d, "a/b", "a/c", "a/d", "a/e")
	f.set(func() { f.forgets = true })
	err := d.List(t.Context(), "", "", func(target.Item) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "in order") {
		t.Error(err)
	}
}

// A server that does not know If-None-Match is found out, and asked for each name first.
func TestWithoutConditionalPut(t *testing.T) {
	for _, answer := range []int{http.StatusOK, http.StatusNotImplemented} {
		d, f := onFake(t)
		f.overwrites = true
		f.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			refused := r.Header.Get("If-None-Match") != "" && answer != http.StatusOK
			if refused {
				refuse(w, answer, "NotImplemented", "")
			}
			return refused
		}
		open(t, d)
		create(t, d, "a/b")
		if err := d.Create(t.Context(), "a/b", file(t, "x")); !errors.Is(err, target.ErrExists) {
			t.Errorf("%d: %v", answer, err)
		}
		if refuses, err := target.Exclusive(t.Context(), d); refuses || err != nil {
			t.Errorf("%d: %t, %v", answer, refuses, err)
		}
		if got := read(t, d, "a/b", 0, 9) + read(t, d, target.Mark, 0, 12); got != `a/b{"format":1}` {
			t.Errorf("%d: %q", answer, got)
		}
	}
	d, f := ready(t)
	was := len(f.seen(http.MethodGet))
	create(t, d, "a/b")
	if n := len(f.seen(http.MethodGet)) - was; n != 0 {
		t.Errorf("a server that refuses was asked for the name %d times", n)
	}
	if refuses, err := target.Exclusive(t.Context(), d); !refuses || err != nil {
		t.Errorf("%t, %v", refuses, err)
	}
}

// After a conflict with another call, the name is asked for: the other one may have failed.
func TestConflict(t *testing.T) {
	d, f := ready(t)
	f.set(func() {
		f.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				refuse(w, http.StatusConflict, "ConditionalRequestConflict", "")
			}
			return r.Method == http.MethodPut
		}
	})
	if err := d.Create(t.Context(), "first", file(t, "x")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
	if err := d.Create(t.Context(), "other", file(t, "x")); !errors.Is(err, target.ErrUnreachable) {
		t.Error(err)
	}
}

// Credentials that may only put are enough for a node.
func TestPutOnly(t *testing.T) {
	d, f := onFake(t)
	f.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			refuse(w, http.StatusForbidden, "AccessDenied", "")
		}
		return r.Method != http.MethodPut
	}
	if err := errors.Join(d.Open(t.Context(), true), d.Open(t.Context(), false)); err != nil {
		t.Fatal(err)
	}
	create(t, d, "a/b")
	if err := d.Create(t.Context(), "a/b", file(t, "x")); !errors.Is(err, target.ErrExists) {
		t.Error(err)
	}
}

// A mark is made only where there is nothing, and one of another format is left alone.
func TestMarkInBucket(t *testing.T) {
	d, f := onFake(t)
	f.objects["some/where/"] = fakeObject{} // stands for a folder
	f.objects["some/whereelse"] = fakeObject{}
	open(t, d)
	if err := d.Delete(t.Context(), target.Mark); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.objects["some/where/x"] = fakeObject{} })
	if err := d.Open(t.Context(), true); !errors.Is(err, target.ErrChanged) {
		t.Error(err)
	}
	f.set(func() { f.objects["some/where/"+target.Mark] = fakeObject{body: []byte(`{"format":2}`)} })
	if err := d.Open(t.Context(), true); !errors.Is(err, target.ErrFormat) {
		t.Error(err)
	}
}
