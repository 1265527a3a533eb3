/* The page at "/": what runs here, how to use it, and a box to try it. Self-contained; the browser
 * gets the model's name as a JSON string and inserts it as text, never as markup. */
#include "http/page.h"

#include "codec/json_out.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>weft</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<style>\n"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;"
    "color:#222;background:#fcfcfa}\n"
    "h1{font-weight:600}code,pre,textarea{font-family:ui-monospace,monospace;font-size:.9rem}\n"
    "pre{background:#f0efe9;padding:.8rem;overflow:auto;border-radius:4px;white-space:pre-wrap}\n"
    "textarea{width:100%;box-sizing:border-box;padding:.6rem}button{padding:.4rem 1rem}\n"
    "#out{min-height:3rem}\n</style></head><body>\n<h1>weft</h1>\n"
    "<p>Serving <code id=\"model\"></code>. Speaks OpenAI's API at <code>/v1</code>; "
    "<a href=\"/health\">health</a>, <a href=\"/metrics\">metrics</a>, "
    "<a href=\"/v1/models\">models</a>.</p>\n<pre id=\"curl\"></pre>\n"
    "<p><textarea id=\"prompt\" rows=\"4\">Once upon a time</textarea></p>\n"
    "<p><button id=\"go\">Complete</button> <button id=\"stop\" disabled>Stop</button> "
    "<input id=\"key\" type=\"password\" placeholder=\"API key, if there is one\"></p>\n"
    "<pre id=\"out\"></pre>\n<script>\nconst model=";

static const char tail[] =
    ";\nconst $=id=>document.getElementById(id);\n"
    "$('model').textContent=model;\n"
    "$('curl').textContent=\"curl \"+location.origin+\"/v1/completions "
    "-H 'Content-Type: application/json' \\\\\\n  -d '\"+JSON.stringify({prompt:'Once upon a time',"
    "max_tokens:64})+\"'\";\n"
    "let ctl=null;\n$('stop').onclick=()=>ctl&&ctl.abort();\n"
    "$('go').onclick=async()=>{\n ctl=new AbortController();$('go').disabled=true;"
    "$('stop').disabled=false;\n const head={'Content-Type':'application/json'};"
    "if($('key').value)head.Authorization='Bearer '+$('key').value;\n const "
    "out=$('out');out.textContent=$('prompt').value;\n try{\n"
    "  const r=await fetch('/v1/completions',{method:'POST',signal:ctl.signal,"
    "headers:head,body:JSON.stringify({prompt:$('prompt').value,"
    "max_tokens:200,stream:true})});\n"
    "  if(!r.ok){out.textContent=(await r.json()).error.message;return}\n"
    "  const reader=r.body.getReader(),dec=new TextDecoder();let buf='';\n"
    "  for(;;){const{done,value}=await reader.read();if(done)break;\n"
    "   buf+=dec.decode(value,{stream:true});let i;\n"
    "   while((i=buf.indexOf('\\n\\n'))>=0){const ev=buf.slice(0,i);buf=buf.slice(i+2);\n"
    "    if(!ev.startsWith('data: ')||ev==='data: [DONE]')continue;\n"
    "    const d=JSON.parse(ev.slice(6));\n"
    "    if(d.error){out.textContent+='\\n'+d.error.message}\n"
    "    else if(d.choices.length)out.textContent+=d.choices[0].text}}\n"
    " }catch(e){if(e.name!=='AbortError')out.textContent+='\\n'+e}\n"
    " finally{$('go').disabled=false;$('stop').disabled=true}\n};\n"
    "</script></body></html>\n";

/* A JSON string that is also safe inside <script>: '<' could begin "</script>". */
static void add_script_string(struct weft_buf *out, const char *text) {
    weft_buf_add_char(out, '"');
    for (; *text; text++) {
        if (*text == '<')
            weft_buf_add_str(out, "\\u003c");
        else if ((unsigned char)*text < 0x80)
            weft_json_text(out, text, 1);
        else
            weft_buf_add_char(out, *text);
    }
    weft_buf_add_char(out, '"');
}

void wefti_api_write_page(const char *model_name, struct weft_buf *out) {
    weft_buf_add_str(out, head);
    add_script_string(out, model_name);
    weft_buf_add_str(out, tail);
}
