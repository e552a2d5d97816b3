package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain makes text from outside fit for a terminal: what would steer it, or change the order in which it is read, is
// spelled out as Go spells it. Line ends stay.
func plain(s string) string { return spelled(s, func(r rune) bool { return r == '\n' }) }

// cell is plain for a place in a table: one line, no columns of its own.
func cell(v any) string {
	return spelled(strings.ReplaceAll(fmt.Sprint(v), "\n", "; "), func(rune) bool { return false })
}

func spelled(s string, keep func(rune) bool) string {
	steers := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) && !keep(r) }
	if strings.IndexFunc(s, steers) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if steers(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// clip shortens text to n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
