package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"testing"
)

// A Sheet joins pictures of pages into one that a person can look over.
type Sheet struct {
	t       testing.TB
	columns int
	cells   []*image.RGBA
}

// Bounds of a picture in a sheet, in pixels. Of a longer page, the beginning is shown.
const (
	cellWidth, cellHeight = 640, 900
	cellGap               = 8
)

// NewSheet returns an empty sheet with so many pictures in a row.
func NewSheet(t testing.TB, columns int) *Sheet { return &Sheet{t: t, columns: columns} }

// Add adds a picture, which is a PNG; a wider one is made smaller.
func (s *Sheet) Add(shot []byte) {
	s.t.Helper()
	decoded, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		s.t.Fatal(err)
	}
	from := image.NewRGBA(decoded.Bounds())
	draw.Draw(from, from.Rect, decoded, decoded.Bounds().Min, draw.Src)
	scale := max(1, float64(from.Rect.Dx())/cellWidth)
	wide, high := int(float64(from.Rect.Dx())/scale), min(int(float64(from.Rect.Dy())/scale), cellHeight)
	cell := image.NewRGBA(image.Rect(0, 0, wide, high))
	for y := range high {
		for x := range wide {
			area := image.Rect(int(float64(x)*scale), int(float64(y)*scale), int(float64(x+1)*scale), int(float64(y+1)*scale))
			cell.SetRGBA(x, y, mean(from, area))
		}
	}
	s.cells = append(s.cells, cell)
}

// mean is the mean colour of an area; grey if it is outside of the picture.
func mean(in *image.RGBA, area image.Rectangle) color.RGBA {
	area = area.Intersect(in.Rect)
	if area.Empty() {
		return color.RGBA{128, 128, 128, 255}
	}
	var r, g, b, n int
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			i := in.PixOffset(x, y)
			r, g, b, n = r+int(in.Pix[i]), g+int(in.Pix[i+1]), b+int(in.Pix[i+2]), n+1
		}
	}
	return color.RGBA{uint8(r / n), uint8(g / n), uint8(b / n), 255}
}

// Write writes the sheet to a file, as PNG.
func (s *Sheet) Write(file string) {
	s.t.Helper()
	at := make([]image.Point, len(s.cells))
	size := image.Point{}
	for first := 0; first < len(s.cells); first += s.columns {
		left, lowest := 0, size.Y
		for i := first; i < min(first+s.columns, len(s.cells)); i++ {
			at[i] = image.Pt(left, size.Y)
			left += s.cells[i].Rect.Dx() + cellGap
			size.X, lowest = max(size.X, left), max(lowest, size.Y+s.cells[i].Rect.Dy()+cellGap)
		}
		size.Y = lowest
	}
	whole := image.NewRGBA(image.Rectangle{Max: size})
	draw.Draw(whole, whole.Rect, image.NewUniform(color.RGBA{96, 96, 96, 255}), image.Point{}, draw.Src)
	for i, cell := range s.cells {
		draw.Draw(whole, cell.Rect.Add(at[i]), cell, image.Point{}, draw.Src)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, whole); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		s.t.Fatal(err)
	}
}
