// Package site has the tests of the site that "make site" builds from the documentation.
package site

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each page of docs is in the navigation, and the navigation names no other page but the two that
// hooks.py adds.
func TestNavigationHasAllPages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("mkdocs.yml")
	require.NoError(t, err)
	_, nav, found := strings.Cut(string(text), "\nnav:\n")
	require.True(t, found)
	var got []string
	for _, match := range regexp.MustCompile(`(?m): (\S+\.md)$`).FindAllStringSubmatch(nav, -1) {
		got = append(got, match[1])
	}
	want := []string{"index.md", "wheel.md"}
	err = filepath.WalkDir("../docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			want = append(want, strings.TrimPrefix(filepath.ToSlash(name), "../docs/"))
		}
		return err
	})
	require.NoError(t, err)
	assert.ElementsMatch(t, want, got)
}

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	identity  = regexp.MustCompile(`(?:id|name)="([^"]*)"`)
)

// Each link, image and script of the rendered site exists, and so does each heading that a link
// names. Nothing is loaded from another host.
func TestLinksOfRenderedSite(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mkdocs"); err != nil {
		if os.Getenv("TIMINGWHEEL_REQUIRE_MKDOCS") == "1" {
			t.Fatal("no mkdocs found, and TIMINGWHEEL_REQUIRE_MKDOCS is 1")
		}
		t.Skip("no mkdocs found")
	}
	folder := t.TempDir()
	out, err := exec.Command("mkdocs", "build", "--quiet", "-f", "mkdocs.yml", "-d", folder).CombinedOutput()
	require.NoError(t, err, "%s", out)
	pages := map[string]string{}
	err = filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".html") || filepath.Base(name) == "404.html" {
			return err
		}
		text, err := os.ReadFile(name)
		rel := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(name, folder)), "/")
		pages[rel] = string(text)
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(pages), 20)
	headings := map[string]map[string]bool{}
	for name, text := range pages {
		headings[name] = map[string]bool{"": true}
		for _, match := range identity.FindAllStringSubmatch(text, -1) {
			headings[name][match[1]] = true
		}
	}
	for name, text := range pages {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			target, heading, _ := strings.Cut(match[1], "#")
			if strings.HasPrefix(target, "http") || strings.HasPrefix(target, "data:") || strings.HasPrefix(target, "wheel/") {
				continue // make site builds the folder of the wheel
			}
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
			}
			if _, isPage := pages[to]; isPage {
				assert.True(t, headings[to][heading], "%s: %s names no heading", name, match[1])
				continue
			}
			_, err := os.Stat(filepath.Join(folder, filepath.FromSlash(to)))
			assert.NoError(t, err, name)
		}
		for _, match := range regexp.MustCompile(`(?:src|<link[^>]*href)="(https?:[^"]*)"`).FindAllStringSubmatch(text, -1) {
			assert.Fail(t, "loaded from another host", "%s: %s", name, match[1])
		}
		assert.NotContains(t, text, "&lt;!-- with:", name)
	}
}
