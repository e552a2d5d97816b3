package edge

import (
	"net/http"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
)

// Age, Cache-Control and Cache-Status describe the freshness of an object.
func TestFreshnessInHeaders(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Unix(1_800_000_000, 0)
	at := func(age, left time.Duration) asset.Object {
		return asset.Object{From: asset.FromCAS, At: now.UnixNano(),
			Checked: now.Add(-age).UnixNano(), Fresh: now.Add(left).UnixNano()}
	}
	with := func(o asset.Object, change func(*asset.Object)) asset.Object {
		change(&o)
		return o
	}
	for _, tt := range []struct {
		o                  asset.Object
		age, cache, status string
	}{
		{at(0, day), "0", "public, max-age=86400", "hit; ttl=86400; detail=cas"},
		{at(90*time.Second, 30*time.Second), "90", "public, max-age=120", "hit; ttl=30; detail=cas"},
		{at(day, 10*day), "86400", "public, max-age=172800", "hit; ttl=864000; detail=cas"},
		{at(time.Hour, -2*time.Minute), "3600", "no-cache", "hit; ttl=-120; detail=cas"},
		{with(at(time.Hour, -time.Minute), func(o *asset.Object) { o.Silent = true }), "3600", "no-cache",
			"hit; ttl=-60; detail=silent"},
		{with(at(0, time.Minute), func(o *asset.Object) { o.Asked = http.StatusNotModified }), "0",
			"public, max-age=60", "fwd=stale; fwd-status=304; ttl=60"},
		{with(at(0, 0), func(o *asset.Object) { o.Asked = http.StatusOK }), "0", "no-cache",
			"fwd=stale; fwd-status=200; stored; ttl=0"},
		{with(at(0, day), func(o *asset.Object) { o.Filled = true }), "0", "public, max-age=86400", "fwd=uri-miss; stored"},
		{asset.Object{From: asset.FromHot, At: now.UnixNano()}, "", "no-cache", "hit; detail=hot"}, // of an earlier release
	} {
		age, cache := freshness(&tt.o)
		if got := cacheStatus(&tt.o); age != tt.age || cache != tt.cache || got != tt.status {
			t.Errorf("%+v: Age %q, %q, %q, want %q, %q, %q", tt.o, age, cache, got, tt.age, tt.cache, tt.status)
		}
	}
}
