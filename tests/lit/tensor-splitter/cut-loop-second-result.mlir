// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=128KB --split-size=110KB 2>&1 | filecheck %s

// Nobody reads the inner loop's first carry when it is done. Its second one depends on nothing that is cut, and is read in
// slices: the inner loop, which is cut for the first, gives the second in slices too.

// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %arg0, {{.*}} sizes = [128, 200]
// CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %[[X:.*]] = %[[ROWS]]) : tensor<i32>, tensor<128x200xf32>
// CHECK: %[[INNER:.*]]:3 = stablehlo.while({{.*}} = %[[X]], {{.*}}) : tensor<i32>, tensor<128x200xf32>, tensor<128x200xf32>
// CHECK: stablehlo.add %[[INNER]]#2, %[[X]] : tensor<128x200xf32>
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %r: tensor<256xf32>, %v: tensor<200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<256x200xf32>
  %outer:2 = stablehlo.while(%i = %i0, %x = %a) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %inner:3 = stablehlo.while(%j = %i0, %h = %x, %s = %zeros) : tensor<i32>, tensor<256x200xf32>, tensor<256x200xf32>
        cond {
          %more = stablehlo.compare LT, %j, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %more : tensor<i1>
        } do {
          %then = stablehlo.add %j, %one : tensor<i32>
          %0 = stablehlo.cosine %h : tensor<256x200xf32>
          %1 = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
          stablehlo.return %then, %0, %1 : tensor<i32>, tensor<256x200xf32>, tensor<256x200xf32>
        }
      %3 = stablehlo.add %inner#2, %x : tensor<256x200xf32>
      stablehlo.return %next, %3 : tensor<i32>, tensor<256x200xf32>
    }
  %4 = stablehlo.dot_general %outer#1, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %4 : tensor<256xf32>
}
