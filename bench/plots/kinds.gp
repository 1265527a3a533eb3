# docs/kinds.svg: every kind of weight beside the ceiling that binds it.
load "bench/plots/style.gpi"
if (!has("kinds")) exit
set terminal svg size 900,340 font "sans-serif,13" background "white" noenhanced
set output "docs/kinds.svg"
set title "Share of the machine by kind of weight (*f32: f32 activations)"
set style data histograms
set style histogram clustered gap 1
set style fill solid
set xtics rotate by 35 right scale 0
set yrange [0:130]
set ylabel "%"
set key outside right top
plot data."/kinds.tsv" using (100 * column("m1_share")):xtic(1) linecolor rgb colour[1] title "1 row, of DRAM", \
     "" using (100 * column("m16_share")) linecolor rgb "#9ac4e4" title "16 rows, of peak", \
     "" using (100 * column("m512_share")) linecolor rgb colour[2] title "512 rows, of peak"
