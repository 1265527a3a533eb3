# docs/rates.svg: tokens per second of decoding against the batch, and of a prompt; weft and llama.cpp.
load "bench/plots/style.gpi"
if (!has("rates")) exit
set terminal svg size 900,380 font "sans-serif,13" background "white" noenhanced
set output "docs/rates.svg"
models = system(sprintf("awk -F'\\t' 'NR > 1 && $5 != \"-\" && !seen[$1]++ {print $1}' %s/rates.tsv", data))
set multiplot layout 1,2
set title "Decode: tokens/s by batch (solid: weft, dashed: llama.cpp)"
set logscale xy 2
set xlabel "streams"
set ylabel "tokens/s"
set xtics (1, 2, 4, 8, 16, 32)
set key left top
plot for [i=1:words(models)] of_model(word(models, i), "decode") using 3:4 with linespoints \
         linewidth 2 pointtype 7 pointsize 0.5 linecolor rgb colour[i] title word(models, i), \
     for [i=1:words(models)] of_model(word(models, i), "decode") using 3:5 with linespoints \
         linewidth 1.5 dashtype 2 pointtype 6 pointsize 0.5 linecolor rgb colour[i] notitle
unset logscale
unset xlabel
set title "Prompt of 512 tokens: tokens/s"
set key below
set style fill solid
set boxwidth 0.36
set yrange [0:*]
set xrange [0.4:words(models) + 0.6]
set xtics () norotate
set for [i=1:words(models)] xtics add (word(models, i) i)
plot for [i=1:words(models)] of_model(word(models, i), "prompt") using (i - 0.2):4 with boxes \
         linecolor rgb colour[1] title (i == 1 ? "weft" : ""), \
     for [i=1:words(models)] of_model(word(models, i), "prompt") using (i + 0.2):5 with boxes \
         linecolor rgb "#b0b0b0" title (i == 1 ? "llama.cpp" : "")
unset multiplot
