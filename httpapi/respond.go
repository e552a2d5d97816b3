package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// netHTTPBuffer is how much of an answer net/http holds back. What fits it gets its length from there: one header less
// here keeps the map of headers at the size it begins with.
const netHTTPBuffer = 2048

const (
	cacheNone      = "no-store"
	cacheAsk       = "no-cache"
	cacheForever   = "public, max-age=31536000, immutable"
	typeJSON       = "application/json"
	typeCBOR       = "application/cbor"
	typeLines      = "application/x-ndjson"
	typeEvents     = "text/event-stream"
	typeBytes      = "application/octet-stream"
	typeText       = "text/plain; charset=utf-8"
	replayedHeader = "Idempotent-Replayed"
)

// respond answers with v as JSON, not to be kept.
func respond(c *call, status int, v any) error {
	return respondCached(c, status, cacheNone, v)
}

// respondCached answers with v as JSON, to be kept as cache says.
func respondCached(c *call, status int, cache string, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return c.send(status, cache, body)
}

// encode is one line of JSON.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	return append(body, '\n'), err
}

// send answers with JSON that is ready.
func (c *call) send(status int, cache string, body []byte) error {
	c.set("Content-Type", typeJSON)
	c.set("Cache-Control", cache)
	if len(body) > netHTTPBuffer {
		c.set("Content-Length", strconv.Itoa(len(body)))
	}
	c.WriteHeader(status)
	_, _ = c.Write(body) // who does not read it has left
	return nil
}

// sendTagged answers 304 to who has the bytes already.
func (c *call) sendTagged(cache, etag string, body []byte) error {
	c.set("Etag", etag)
	if matches(c.r.Header["If-None-Match"], etag) {
		c.set("Cache-Control", cache)
		c.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.send(http.StatusOK, cache, body)
}

// matches compares weakly, as RFC 9110 wants it of If-None-Match.
func matches(given []string, etag string) bool {
	for _, line := range given {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// empty answers 204.
func (c *call) empty() error {
	c.set("Cache-Control", cacheNone)
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// markReplayed says that an earlier request did the work.
func (c *call) markReplayed(yes bool) {
	if yes {
		c.set(replayedHeader, "true")
	}
}
