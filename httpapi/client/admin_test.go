package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
)

// routeCase is one call: its request (method, path with query, body), the answer, and the result.
type routeCase struct {
	want, body string
	call       func(context.Context, *apiClient) (any, error)
	got        any
}

func probeCases() []routeCase {
	return []routeCase{
		{"GET /healthz", "", func(ctx context.Context, c *apiClient) (any, error) { return nil, c.Healthz(ctx) }, nil},
		{"GET /version", `{"go":"x"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.NodeVersion(ctx)
			return v.Go, err
		}, "x"},
		{"GET /metrics", "up 1\n", func(ctx context.Context, c *apiClient) (any, error) {
			b, err := c.Metrics(ctx)
			return string(b), err
		}, "up 1\n"},
		{"GET /openapi.json", "{}", func(ctx context.Context, c *apiClient) (any, error) {
			b, err := c.OpenAPI(ctx)
			return string(b), err
		}, "{}"},
		{"GET /schema/a%2Fb", "{}", func(ctx context.Context, c *apiClient) (any, error) {
			b, err := c.Schema(ctx, "a/b")
			return string(b), err
		}, "{}"},
	}
}

func operatorCases() []routeCase {
	return []routeCase{
		{
			`POST /admin/v1/drain {"reason":"r"}`,
			"{}",
			func(ctx context.Context, c *apiClient) (any, error) { return nil, c.Drain(ctx, "r") },
			nil,
		},
		{"GET /admin/v1/config", `{"version":3}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Config(ctx)
			return v.Version, err
		}, uint64(3)},
		{"POST /admin/v1/config/reload", `{"version":4}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Reload(ctx)
			return v.Version, err
		}, uint64(4)},
		{"GET /admin/v1/tasks", `{"tasks":[{"name":"n"}]}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Tasks(ctx)
			return v.Tasks[0].Name, err
		}, "n"},
		{"GET /admin/v1/queues", `{"queues":[{"cap":9}]}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Queues(ctx)
			return v.Queues[0].Cap, err
		}, 9},
		{
			"GET /admin/v1/series",
			`{"series":[{"name":"s","values":[null,2]}]}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.Series(ctx)
				return v.Series[0].Values[0] == nil && *v.Series[0].Values[1] == 2, err
			},
			true,
		},
		{"GET /admin/v1/snapshots", `{"dir":"/d"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Snapshots(ctx)
			return v.Dir, err
		}, "/d"},
		{"GET /admin/v1/sessions", `{"sessions":[{"id":"a"}]}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Sessions(ctx)
			return v.Sessions[0].ID, err
		}, "a"},
		{"DELETE /admin/v1/sessions/a", "", func(ctx context.Context, c *apiClient) (any, error) {
			return nil, c.EndSession(ctx, "a")
		}, nil},
		{
			"GET /admin/v1/doctor",
			`{"findings":[{"check":"swap"}]}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.Doctor(ctx)
				return v.Findings[0].Check, err
			},
			"swap",
		},
		{"GET /admin/v1/clock", `{"state":"ahead"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Clock(ctx)
			return v.State, err
		}, "ahead"},
		{"POST /admin/v1/clock/accept", `{"by_s":3600}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.AcceptClock(ctx)
			return v.ByS, err
		}, 3600.0},
		{"GET /admin/v1/log-level", `{"level":"warn"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.LogLevel(ctx)
			return v.Level, err
		}, "warn"},
		{
			`PUT /admin/v1/log-level {"level":"debug"}`,
			`{"level":"debug"}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.SetLogLevel(ctx, nodeapi.LogLevel{Level: "debug"})
				return v.Level, err
			},
			"debug",
		},
		{"GET /admin/v1/debug/profile/heap", "pprof", func(ctx context.Context, c *apiClient) (any, error) {
			var b bytes.Buffer
			err := c.Profile(ctx, "heap", 0, &b)
			return b.String(), err
		}, "pprof"},
		{
			"GET /admin/v1/debug/profile/profile?seconds=2",
			"pprof",
			func(ctx context.Context, c *apiClient) (any, error) {
				return nil, c.Profile(ctx, "profile", 1200*time.Millisecond, io.Discard)
			},
			nil,
		},
	}
}

func tokenCases() []routeCase {
	return []routeCase{
		{
			`POST /admin/v1/tokens {"scopes":["a.b"]}`,
			`{"tid":"t"}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.Mint(ctx, nodeapi.MintRequest{Scopes: []string{"a.b"}})
				return v.TID, err
			},
			"t",
		},
		{"GET /admin/v1/tokens?cursor=c&limit=5", `{"next":"d"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Tokens(ctx, "c", 5)
			return v.Next, err
		}, "d"},
		{
			`POST /admin/v1/tokens/revoke {"tid":"t"}`,
			`{"what":"tid"}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.Revoke(ctx, nodeapi.RevokeRequest{TID: "t"})
				return v.What, err
			},
			"tid",
		},
		{
			`POST /admin/v1/tokens/verify {"token":"t"}`,
			`{"allowed":true}`,
			func(ctx context.Context, c *apiClient) (any, error) {
				v, err := c.VerifyToken(ctx, nodeapi.VerifyRequest{Token: "t"})
				return v.Allowed, err
			},
			true,
		},
		{"GET /admin/v1/keys", `{"active":"k"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Keys(ctx)
			return v.Active, err
		}, "k"},
		{"POST /admin/v1/keys/rotate", `{"kid":"k"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.RotateKey(ctx)
			return v.Kid, err
		}, "k"},
		{"POST /admin/v1/keys/k%2F/retire", `{"kid":"k"}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.RetireKey(ctx, "k/")
			return v.Kid, err
		}, "k"},
	}
}

func fileCases() []routeCase {
	return []routeCase{
		{"GET /admin/v1/db/info", `{"seq":2}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.DBInfo(ctx)
			return v.Seq, err
		}, uint64(2)},
		{"GET /admin/v1/db/stats", `{"groups":2}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.DBStats(ctx)
			return v.Groups, err
		}, uint64(2)},
		{
			"POST /admin/v1/db/accept-restore",
			"",
			func(ctx context.Context, c *apiClient) (any, error) { return nil, c.AcceptRestore(ctx) },
			nil,
		},
		{"POST /admin/v1/db/check", `{"ok":true}` + "\n", func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.CheckDB(ctx, nil)
			return *v.OK, err
		}, true},
		{"GET /admin/v1/audit?from=7", `{"last":9}`, func(ctx context.Context, c *apiClient) (any, error) {
			v, err := c.Audit(ctx, 7, 0)
			return v.Last, err
		}, uint64(9)},
	}
}

// Every call requests its route and returns the answer.
func TestCallsAskTheirRoutes(t *testing.T) {
	for _, tt := range slices.Concat(probeCases(), operatorCases(), tokenCases(), fileCases()) {
		asked := ""
		c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
			_, _ = io.WriteString(rw, tt.body)
		}, client.Options{})
		got, err := tt.call(t.Context(), c)
		if err != nil || asked != tt.want || got != tt.got {
			t.Errorf("asked %q, want %q; got %v, %v", asked, tt.want, got, err)
		}
	}
}

func TestCheckLines(t *testing.T) {
	for _, tt := range []struct {
		doc, body, seen, want string
		sound                 bool
	}{
		{"progress, then the verdict", `{"stage":"copy","done":1,"total":2}` + "\n" + `{"ok":true}` + "\n", "copy 1/2 ", "", true},
		{"a bad file is an answer", `{"ok":false,"findings":["f"]}` + "\n", "", "", false},
		{"a problem ends it", `{"stage":"copy"}` + "\n" + `{"problem":{"reason":"store_full","title":"Full"}}` + "\n", "copy 0/0 ", "store_full", false},
		{"cut short", `{"stage":"copy"}` + "\n", "copy 0/0 ", "outcome unknown", false},
	} {
		c := serve(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, tt.body) },
			client.Options{})
		seen := ""
		l, err := c.CheckDB(
			t.Context(),
			func(l nodeapi.CheckLine) { seen += fmt.Sprintf("%s %d/%d ", l.Stage, l.Done, l.Total) },
		)
		if seen != tt.seen || l.Sound() != tt.sound {
			t.Errorf("%s: progress %q, verdict %+v", tt.doc, seen, l)
		}
		if tt.want == "" && err != nil || tt.want != "" && !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

// brokenWriter takes nothing.
type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestProfilesThatFail(t *testing.T) {
	boom := errors.New("boom")
	whole := func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "pprof") }
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(rw, "pprof")
	}
	refused := func(rw http.ResponseWriter, _ *http.Request) { problem(rw, 404, `{"reason":"not_found"}`) }
	for _, tt := range []struct {
		doc  string
		h    http.HandlerFunc
		w    io.Writer
		want string
	}{
		{"the writer's error is its own", whole, brokenWriter{boom}, "boom"},
		{"cut short", cut, io.Discard, "no whole answer"},
		{"refused", refused, io.Discard, "not_found"},
	} {
		err := serve(t, tt.h, client.Options{}).Profile(t.Context(), "heap", 0, tt.w)
		if err == nil || !strings.Contains(err.Error(), tt.want) || tt.want == "boom" && !errors.Is(err, boom) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}
