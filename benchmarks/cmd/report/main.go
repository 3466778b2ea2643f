// Command report makes tables and plots of the figures of cmd/compare:
//
//	go -C benchmarks run ./cmd/report -o ../docs/benchmarks compare.txt
//
// It writes README.md and an SVG file for each plot. The files are a function of the figures.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/urfave/cli/v3"
)

const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() { os.Exit(report(os.Args, os.Stdout, os.Stderr)) }

// report runs the program and returns its exit code.
func report(args []string, stdout, stderr io.Writer) int {
	input, directory := "", "docs/benchmarks"
	flags := []cli.Flag{
		&cli.StringFlag{Name: "o", Usage: "write README.md and the plots to this `directory`", Value: directory, Destination: &directory},
	}
	const usage = "make tables and plots of the figures of cmd/compare"
	text := "go -C benchmarks run ./cmd/report [-o directory] compare.txt"
	cmd := command.New("report", usage, text, flags, stdout, func(cmd *cli.Command) error {
		if n := cmd.Args().Len(); n != 1 {
			return fmt.Errorf("needs one file with figures, not %d", n)
		}
		if directory == "" {
			return errors.New("-o must name a directory")
		}
		input = cmd.Args().First()
		return nil
	})
	if err := cmd.Run(context.Background(), args); err != nil {
		fmt.Fprintf(stderr, "report: %v\nSee report -help.\n", err)
		return exitUsage
	}
	if input == "" { // printed the help text
		return exitOK
	}
	if err := write(input, directory); err != nil {
		fmt.Fprintf(stderr, "report: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "wrote %s\n", filepath.Join(directory, "README.md"))
	return exitOK
}

// write reads the figures in the file input and writes the report to directory.
func write(input, directory string) error {
	text, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	m, err := results.Read(bytes.NewReader(text), input, results.Compare)
	if err != nil {
		return err
	}
	outcomes, err := results.ReadOutcomes(bytes.NewReader(text))
	if err != nil {
		return err
	}
	f := newFigures(m, outcomes)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	var drawn []chart
	for _, c := range charts(f) {
		if len(c.lines) == 0 {
			continue
		}
		svg, err := c.draw()
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		if err := os.WriteFile(filepath.Join(directory, c.file), svg, 0o644); err != nil {
			return err
		}
		drawn = append(drawn, c)
	}
	raw := ""
	if name, err := filepath.Rel(directory, input); err == nil && filepath.Base(name) == name {
		raw = name
	}
	return os.WriteFile(filepath.Join(directory, "README.md"), []byte(markdown(f, drawn, raw)), 0o644)
}
