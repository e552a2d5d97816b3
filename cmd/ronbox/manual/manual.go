package manual

import (
	"embed"
	"regexp"
	"strings"
)

// FS holds README.md, the list of the topics, and TOPIC.md for each of them.
//
//go:embed *.md
var FS embed.FS

// Topic is a page of the manual.
type Topic struct {
	Name  string // without the .md of its file
	About string // one line
}

var listed = regexp.MustCompile(`(?m)^- \[([a-z-]+)\]\([a-z-]+\.md\): (.+)$`)

// Topics returns the topics in the order of README.md.
func Topics() (out []Topic) {
	list, err := FS.ReadFile("README.md")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, m := range listed.FindAllStringSubmatch(string(list), -1) {
		out = append(out, Topic{m[1], m[2]})
	}
	return out
}

// Page returns the Markdown of a topic. It returns false if there is no such topic.
func Page(topic string) ([]byte, bool) {
	if topic == "README" || strings.ContainsAny(topic, `/\`) {
		return nil, false
	}
	text, err := FS.ReadFile(topic + ".md")
	return text, err == nil
}
