package origin_test

import (
	"net/http"
	"testing"
	"time"

	"ronbox/engines/edge/origin"
)

func TestFreshnessOf(t *testing.T) {
	t.Parallel()
	const date, later = "Sun, 29 Nov 2026 10:00:00 GMT", "Sun, 29 Nov 2026 11:00:00 GMT"
	for _, tt := range []struct {
		header http.Header
		want   origin.Freshness
	}{
		{http.Header{}, origin.Freshness{}},
		{http.Header{"Cache-Control": {"max-age=60"}}, origin.Freshness{For: time.Minute, Given: true}},
		{http.Header{"Cache-Control": {"max-age=60"}, "Age": {"20"}}, origin.Freshness{For: 40 * time.Second, Given: true}},
		{http.Header{"Cache-Control": {"max-age=60"}, "Age": {"70"}}, origin.Freshness{Given: true}},
		{http.Header{"Cache-Control": {"public", "Max-Age=\"60\", s-maxage=5"}},
			origin.Freshness{For: 5 * time.Second, Given: true, Demand: true}},
		{http.Header{"Cache-Control": {"no-cache"}}, origin.Freshness{Given: true, Demand: true}},
		{http.Header{"Cache-Control": {"max-age=60, no-cache"}}, origin.Freshness{Given: true, Demand: true}},
		{http.Header{"Cache-Control": {`no-cache="set-cookie"`}}, origin.Freshness{Given: true, Demand: true}},
		{http.Header{"Cache-Control": {"max-age=0, must-revalidate"}}, origin.Freshness{Given: true, Demand: true}},
		{http.Header{"Cache-Control": {"proxy-revalidate"}}, origin.Freshness{Demand: true}},
		{http.Header{"Cache-Control": {"max-age=x"}}, origin.Freshness{Given: true}},
		{http.Header{"Cache-Control": {"max-age=-1"}}, origin.Freshness{Given: true}},
		{http.Header{"Cache-Control": {"max-age=99999999999999999999"}}, origin.Freshness{For: 365 * 24 * time.Hour, Given: true}},
		{http.Header{"Expires": {later}, "Date": {date}}, origin.Freshness{For: time.Hour, Given: true}},
		{http.Header{"Expires": {date}, "Date": {later}}, origin.Freshness{Given: true}},
		{http.Header{"Expires": {"0"}, "Date": {date}}, origin.Freshness{Given: true}},
		{http.Header{"Expires": {later}, "Date": {date}, "Cache-Control": {"max-age=60"}},
			origin.Freshness{For: time.Minute, Given: true}},
	} {
		if got := origin.FreshnessOf(tt.header); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.header, got, tt.want)
		}
	}
	for tag, want := range map[string]string{
		`"a"`: `"a"`, `W/"a"`: `W/"a"`, `a`: "", `W/a`: "", `"a"b"`: "", "": "", `w/"a"`: "",
	} {
		if got := origin.WeakTag(http.Header{"Etag": {tag}}); got != want {
			t.Errorf("%s: %q, want %q", tag, got, want)
		}
	}
}
