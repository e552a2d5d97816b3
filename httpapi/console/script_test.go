package console

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The script takes no fragment for a code but one that has the form of a code, and only at the
// entrance: a browser keeps the fragment of a page that leads to the entrance.
func TestScriptKnowsCodes(t *testing.T) {
	script := string(staticFiles()["console.js"].bytes)
	found := regexp.MustCompile(`location\.pathname === "` + enterPath + `" && /(\S+)/\.exec\(location\.hash\)`).
		FindStringSubmatch(script)
	if found == nil {
		t.Fatal("the script does not compare the path and the fragment")
	}
	code := regexp.MustCompile(found[1])
	if one := secret(); !code.MatchString("#" + one) {
		t.Errorf("%s is not taken for a code", one)
	}
	for _, fragment := range []string{"", "#", "#audit", "#" + secret() + "x", "#" + secret()[1:], "#a b"} {
		if code.MatchString(fragment) {
			t.Errorf("%q is taken for a code", fragment)
		}
	}
}

// tag is one tag of a page.
var tag = regexp.MustCompile(`<(/?)([a-z0-9]+)[^>]*?(/?)>`)

// children returns the tags of the elements right below the live part of a page.
func children(page string) (out []string) {
	_, live, _ := strings.Cut(page, `<div data-live="overview">`)
	depth := 0
	for _, one := range tag.FindAllStringSubmatch(live, -1) {
		switch {
		case one[1] == "/":
			if depth--; depth < 0 {
				return out
			}
			continue
		case depth == 0:
			out = append(out, one[2])
		}
		if one[3] == "" && one[2] != "input" {
			depth++
		}
	}
	return out
}

// The script pairs the elements of a page by their places, so the overview has the same ones
// whatever the node answers: an element that came or went would replace those after it.
func TestOverviewKeepsItsPlaces(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	const finding = `{"checked_at":"2026-11-24T12:00:00Z","findings":[{"check":"disk","state":"%s","message":"m"}]}`
	want := []string{"p", "div", "div", "div", "div", "div"}
	for name, change := range map[string]map[string]string{
		"sound":      {"doctor": strings.Replace(finding, "%s", "ok", 1)},
		"attention":  {"doctor": strings.Replace(finding, "%s", "fail", 1)},
		"no charts":  {"series": `{"series":[]}`},
		"no queues":  {"queues": `{"queues":[]}`},
		"no answers": {"doctor": "", "series": "", "queues": "", "status": "", "db/stats": "", "tasks": ""},
	} {
		node := readRecorded(t)
		for path, body := range change {
			a := node["/admin/v1/"+path]
			if a.Body = body; body == "" {
				a.Status = http.StatusServiceUnavailable
			}
			node["/admin/v1/"+path] = a
		}
		got := children(string(newGolden(t, node).page(t, s, "/console/")))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
