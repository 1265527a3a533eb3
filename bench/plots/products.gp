# docs/products.svg: our products divided by oneDNN's; a point per shape, a line through their mean.
load "bench/plots/style.gpi"
if (!has("products")) exit
set terminal svg size 640,380 font "sans-serif,13" background "white" noenhanced
set output "docs/products.svg"
set title "Products beside oneDNN, by rows (dashed: the goal)"
set logscale x 2
set xtics (1, 8, 32, 128, 512)
set xrange [0.8:640]
set yrange [0:*]
set ylabel "ours / oneDNN"
set xlabel "rows of activations"
set key right top
of_type(name) = sprintf("< awk -F'\\t' '$1 == \"%s\"' %s/products.tsv", name, data)
types = "f32 bf16 int8"
$goal << EOD
6.5	1.2
40	1.2


104	1.0
640	1.0
EOD
plot for [i=0:1] $goal index i using 1:2 with lines dashtype 2 linecolor rgb "#000000" notitle, \
     for [i=1:3] of_type(word(types, i)) using 4:9 smooth unique with lines linewidth 2 \
         linecolor rgb colour[i] title word(types, i), \
     for [i=1:3] of_type(word(types, i)) using ($4 * 1.06 ** (i - 2)):9 with points pointtype 7 \
         pointsize 0.5 linecolor rgb colour[i] notitle
